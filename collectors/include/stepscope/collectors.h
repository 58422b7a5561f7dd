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

// Where the host collector looks. Tests point it at a recorded machine.
struct HostOptions {
  std::string root = "";  // put before "/proc" and "/sys"
};

// What the operating system counts, per step: CPU time, run delay, switches and
// I/O of the training thread and process, CPU time and reads of the loaders'
// workers; once per window the usable cores. Linux only.
std::unique_ptr<Collector> MakeHostCollector(const HostOptions& options = {});

// Every source this build has, in the order they should start.
std::vector<std::unique_ptr<Collector>> DefaultCollectors(
    const TorchOptions& options = {});

}  // namespace stepscope
