// The sources of events, with one Make function each. Every function exists in
// every build. If a source was not built, its Start() returns Unavailable and
// says what to install.
#pragma once

#include <stepscope/capture_scopes.h>
#include <stepscope/collector.h>
#include <stepscope/module_hook.h>

#include <memory>
#include <string>
#include <vector>

namespace stepscope {

// What the torch collector records besides operators, autograd nodes and user
// scopes. Each option costs time only if it is on.
struct TorchOptions {
  // Dimensions, strides, types and small values of the arguments.
  bool record_shapes = false;
  // Every allocation and release.
  bool record_memory = false;
  // Stacks (ProfileOptions::with_stack): Python frames if Start() was called
  // from Python, else C++ frames.
  bool with_stack = false;
  // Ranges for Python modules. `module_hook` tells which modules run.
  bool with_modules = false;
  ModuleHook module_hook = {};
};

// LibTorch's operators, on every thread including autograd's, through
// RecordFunction. torch.profiler may run at the same time. record_memory needs
// the memory reporter of the thread that calls Start(): if another profiler
// holds it, there are no memory events, and while this collector holds it,
// torch.profiler cannot be started on that thread.
std::unique_ptr<Collector> MakeTorchCollector(const TorchOptions& options);

// Tracks which operators (with options.with_modules also which module) are open
// while a CUDA graph is captured; for CuptiOptions::capture_scopes. Null in a
// build without LibTorch. Costs nothing between captures.
std::unique_ptr<CaptureScopes> MakeTorchCaptureScopes(
    const TorchOptions& options);

// LibTorch's settings (grad mode, autocast, cuDNN, TF32, thread counts), read
// on the training thread after each step.
std::unique_ptr<Collector> MakeSettingsCollector();

// The statistics of LibTorch's caching allocator, with one sample per device
// after each step. A program that uses no device has no samples. CUDA is not
// needed at build time. Single allocations come from the torch collector.
std::unique_ptr<Collector> MakeAllocatorCollector();

struct HostOptions {
  std::string root = "";  // precedes "/proc" and "/sys"; tests use a copy
  // The id of the training thread; 0: the thread that drives the Profile.
  int64_t training_tid = 0;
};

// The operating system's counters per step: CPU time, run delay, context
// switches and I/O of the training thread and the process; CPU time and reads
// of the loaders' workers. Once per window also the usable cores. Linux only.
std::unique_ptr<Collector> MakeHostCollector(const HostOptions& options = {});

// What the CUPTI collector records besides kernels, copies, memsets, waits and
// the calls that launched them.
struct CuptiOptions {
  // The memory limit for the records of one window, for all devices together.
  // When it is reached, new records are dropped and counted, and the GPU is no
  // longer recorded after that step.
  int64_t max_buffer_bytes = int64_t{256} << 20;
  int64_t buffer_bytes = int64_t{1} << 20;  // of each buffer given to CUPTI
  bool record_memory = true;       // the driver's allocations and memory pools
  bool record_environment = true;  // clocks, power, temperature, throttling
                                   // and link rates 20 times a second, and
                                   // free memory after each step
  // Samples per second of each device's hardware counters (how busy its
  // multiprocessors, Tensor Cores and memory are), 10 to 10,000; 0: none. -1:
  // use the environment variable STEPSCOPE_GPU_COUNTERS; none if it is not set.
  // Needs CUDA 12.6 and the driver's permission. If it fails, a loss says why.
  int32_t counters_hz = -1;
  bool all_calls = false;     // also calls that only query something
  bool queue_times = false;   // when kernels were queued and submitted; must be
                              // switched on before CUDA is initialised
  bool whole_graphs = false;  // one record per launch of a CUDA graph instead
                              // of one per node
  // After the last window, detach CUPTI from the process when a CUDA call
  // returns. Ignored before CUDA 12.6, where detaching breaks existing CUDA
  // graphs.
  bool detach_at_end = true;
  // Gives kernels of CUDA graphs the operators that were open when they were
  // captured. CUPTI is then subscribed to from Arm() on, so that captures
  // before the first window are known. Null: those kernels have no operators.
  std::shared_ptr<CaptureScopes> capture_scopes = nullptr;
};

// The activities of NVIDIA GPUs, from CUPTI, which is loaded at run time.
// Errors of Start(): Unavailable without a driver, without CUPTI, or if the
// program has not used CUDA yet; FailedPrecondition, with the other tool's
// name, while another profiler uses CUPTI; PermissionDenied, with the remedy.
std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options = {});

// NVTX ranges and marks, and the names that NVTX gives to threads and streams.
// Takes effect only in binaries of the process that have not called NVTX yet,
// so create it early. Start() returns Unavailable if another tool receives the
// NVTX calls of this process.
std::unique_ptr<Collector> MakeNvtxCollector();

// All collectors above, in the order in which they start.
std::vector<std::unique_ptr<Collector>> DefaultCollectors(
    const TorchOptions& options = {});

}  // namespace stepscope
