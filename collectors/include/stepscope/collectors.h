// The sources of events, one Make function each. A function whose source was
// not built (no LibTorch) is declared all the same and is missing at link time.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <string>
#include <vector>

namespace stepscope {

// What the torch collector records beside every operator, autograd node and
// user scope; each costs only where it is asked for.
struct TorchOptions {
  bool record_shapes = false;  // dims, strides, dtypes and small values of the
                               // arguments
  bool record_memory = false;  // every allocation and release
  bool with_stack = false;     // C++ stacks, once per distinct op chain
};

// RecordFunction hooks on every thread, autograd's included. LibTorch's
// profiler may run beside it, except that memory events need the reporting slot
// of the thread that calls Start(): FailedPrecondition if another profiler
// holds it.
std::unique_ptr<Collector> MakeTorchCollector(const TorchOptions& options);

// LibTorch's process-wide switches (grad mode, autocast, cuDNN, TF32, threads),
// read once per step on the training thread.
std::unique_ptr<Collector> MakeSettingsCollector();

// What LibTorch's caching allocators hold of their devices: one sample for each
// device in use at each step's end. Needs no CUDA to be built, and a program
// that uses no device has no samples. The allocations themselves are the torch
// collector's.
std::unique_ptr<Collector> MakeAllocatorCollector();

// Where the host collector looks. Tests point it at a recorded machine.
struct HostOptions {
  std::string root = "";  // put before "/proc" and "/sys"
  // The thread that trains, where another one drives; 0: the one that drives.
  int64_t training_tid = 0;
};

// What the operating system counts, per step: CPU time, run delay, switches and
// I/O of the training thread and process, CPU time and reads of the loaders'
// workers; once per window the usable cores. Linux only.
std::unique_ptr<Collector> MakeHostCollector(const HostOptions& options = {});

// What the CUPTI collector records beside kernels, copies, memsets, waits and
// the calls that made them.
struct CuptiOptions {
  // Records not yet decoded, all devices together. When they are full, the
  // newest are dropped and counted.
  int64_t max_buffer_bytes = int64_t{256} << 20;
  int64_t buffer_bytes = int64_t{4} << 20;  // handed to CUPTI at a time
  bool record_memory = true;       // driver allocations and their pools
  bool record_environment = true;  // clocks, power, temperature, throttling,
                                   // and free memory at each step's end
  bool all_calls = false;          // every runtime and driver call, queries too
  bool queue_times = false;   // when kernels were queued and submitted; CUPTI
                              // asks that it is on before CUDA is initialised
  bool whole_graphs = false;  // one record per CUDA graph launch instead of one
                              // per node
  // After the last window CUPTI leaves the process, as a CUDA call returns;
  // never before CUDA 12.6, where living graphs do not survive that.
  bool detach_at_end = true;
};

// What NVIDIA devices do, from their driver's CUPTI, which is loaded at run
// time. Start() says why there is nothing to record: Unavailable without a
// driver, a CUPTI, or any use of CUDA so far; FailedPrecondition while another
// profiler holds CUPTI, which it names; PermissionDenied with the remedy.
std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options = {});

// What the program marks with NVTX: ranges, marks, and the names of threads and
// streams. Makes NVTX call us in all binaries that have not used it yet, so
// make it early. Start() is Unavailable while another tool takes this process's
// NVTX calls.
std::unique_ptr<Collector> MakeNvtxCollector();

// Every source this build has, in the order they should start.
std::vector<std::unique_ptr<Collector>> DefaultCollectors(
    const TorchOptions& options = {});

}  // namespace stepscope
