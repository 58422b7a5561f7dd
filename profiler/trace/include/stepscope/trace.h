// Trace: all events of one recorded window or one file. Immutable, so any
// thread may read it.
//
// There is one table per kind of event, sorted by begin_ns; of rows with the
// same begin the outer one comes first. Links between rows are row indices.
// losses() lists what is missing and why; if it is empty, nothing is missing.
// watched() says which kinds were recorded: if the table of a watched kind is
// empty, there were no such events.
#pragma once

#include <stepscope/event.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// What is known about the run as a whole. Any field may be unknown: "" or -1.
struct RunInfo {
  std::string name;  // "resnet18"
  std::string host;
  int64_t pid = -1;
  int32_t rank = -1;  // -1: the file did not say
  int32_t world_size = -1;
  std::string backend;  // "nccl", "gloo", ""
  std::string run_id;   // the name of its folder in the log directory
  int32_t cycle = 0;
  std::string producer;  // "stepscope 0.1.0", "torch.profiler", ...
  std::string language;  // of the program: "c++", "python"; "" if unknown
  std::string source;    // the file it was read from; "": recorded live
  int64_t window_begin_ns = 0;  // the active window; 0, 0 if unknown
  int64_t window_end_ns = 0;
  std::vector<Device> devices;
  std::string cpu_model;
  // From CPU affinity and cgroup quota. A fractional quota is rounded up.
  int32_t usable_cores = -1;
  int32_t local_ranks = -1;       // ranks of this job on this host
  RowId training_thread = kNone;  // in threads(); kNone if unknown
  std::string torch_version;
  std::string cuda_version;
  bool record_shapes = false;
  bool profile_memory = false;
  bool with_stack = false;
  // Durations of the wait steps, which run with every collector off. They show
  // the length of a step without the profiler.
  std::vector<int64_t> wait_step_ns;
  // Time that recording adds to each op, measured on this machine before the
  // window.
  double op_cost_ns = -1;
  // How much the clock readings at the start and the end of the window disagree
  // about the time between them.
  double clock_error_ns = -1;
  // Threads per op on the CPU, given by the user if the recording's settings()
  // do not contain them. Not part of a file.
  int32_t told_threads = -1;
};

class Trace {
 public:
  Trace() = default;
  Trace(Trace&&) = default;
  Trace& operator=(Trace&&) = default;

  const RunInfo& run() const { return run_; }
  // Adds facts about the machine that the recording lacks. Values below 1 are
  // ignored.
  void TellMachine(int32_t usable_cores, int32_t threads) {
    if (run_.usable_cores < 1 && usable_cores > 0) {
      run_.usable_cores = usable_cores;
    }
    if (threads > 0) run_.told_threads = threads;
  }

  std::span<const Thread> threads() const { return threads_; }
  std::span<const Step> steps() const { return steps_; }
  std::span<const Range> ranges() const { return ranges_; }
  std::span<const Op> ops() const { return ops_; }
  std::span<const OpInputs> op_inputs() const { return op_inputs_; }
  std::span<const Stack> stacks() const { return stacks_; }
  std::span<const RuntimeCall> runtime_calls() const { return runtime_calls_; }
  std::span<const Kernel> kernels() const { return kernels_; }
  std::span<const Copy> copies() const { return copies_; }
  std::span<const Memset> memsets() const { return memsets_; }
  std::span<const Sync> syncs() const { return syncs_; }
  std::span<const Overhead> overheads() const { return overheads_; }
  std::span<const PythonFrame> python_frames() const { return python_frames_; }
  std::span<const Allocation> allocations() const { return allocations_; }
  std::span<const Communication> communications() const {
    return communications_;
  }
  std::span<const Settings> settings() const { return settings_; }
  std::span<const HostUsage> host_usage() const { return host_usage_; }
  std::span<const Loader> loaders() const { return loaders_; }
  std::span<const Stream> streams() const { return streams_; }
  std::span<const DeviceMemory> device_memory() const { return device_memory_; }
  std::span<const DeviceSample> device_samples() const {
    return device_samples_;
  }
  std::span<const Loss> losses() const { return losses_; }

  // The text of an interned name. REQUIRES: id came from this Trace. Valid as
  // long as the Trace lives.
  std::string_view name(NameId id) const { return names_[id]; }
  NameId name_count() const { return static_cast<NameId>(names_.size()); }

  bool watched(Kind kind) const {
    return (watched_ >> static_cast<int>(kind)) & 1;
  }
  // True if any kernel, copy or memset is present.
  bool has_device_work() const {
    return !kernels_.empty() || !copies_.empty() || !memsets_.empty();
  }

 private:
  friend class TraceBuilder;

  RunInfo run_;
  uint64_t watched_ = 0;
  std::vector<std::string> names_{""};
  std::vector<Thread> threads_;
  std::vector<Step> steps_;
  std::vector<Range> ranges_;
  std::vector<Op> ops_;
  std::vector<OpInputs> op_inputs_;
  std::vector<Stack> stacks_;
  std::vector<RuntimeCall> runtime_calls_;
  std::vector<Kernel> kernels_;
  std::vector<Copy> copies_;
  std::vector<Memset> memsets_;
  std::vector<Sync> syncs_;
  std::vector<Overhead> overheads_;
  std::vector<PythonFrame> python_frames_;
  std::vector<Allocation> allocations_;
  std::vector<Communication> communications_;
  std::vector<Settings> settings_;
  std::vector<HostUsage> host_usage_;
  std::vector<Loader> loaders_;
  std::vector<Stream> streams_;
  std::vector<DeviceMemory> device_memory_;
  std::vector<DeviceSample> device_samples_;
  std::vector<Loss> losses_;
};

}  // namespace stepscope
