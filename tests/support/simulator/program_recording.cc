#include "support/simulator/program_recording.h"

#include <stepscope/trace_builder.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "support/simulator/program_inputs.h"
#include "support/simulator/program_live_rows.h"

namespace stepscope::simulator {
namespace {

constexpr uint64_t kTrainingTorchThread = 1;
constexpr uint64_t kAddressesApart = uint64_t{1} << 36;

class Recorder {
 public:
  Recorder(const Machine& machine, const RankCode& code, int rank,
           Jitter& jitter)
      : machine_(machine), code_(code), rank_(rank), jitter_(jitter) {
    // The ranks' host clocks disagree, and device clocks drift from the host's.
    if (rank > 0) skew_ns_ = jitter.Uniform(-3e5, 3e5);
    device_skew_ns_ =
        jitter.Uniform(-machine.clock_error_ns, machine.clock_error_ns);
    const auto first = std::ranges::find_if(code.rows, [&](const Row& row) {
      return row.is == RowIs::kStep && row.step == machine.warmup;
    });
    if (first != code.rows.end()) window_begin_ = first->begin;
    training_ = builder_.ThreadRow(100 + rank, 100 + rank);
    builder_.thread(training_).torch_thread = kTrainingTorchThread;
  }

  Trace Make(const std::vector<Rank::Usage>& usage) {
    Describe();
    Watch();
    for (const DeviceTask& task : code_.tasks) {
      if (task.is == WorkIs::kWait) stream_waits_[task.correlation] = &task;
    }
    for (const Row& row : code_.rows) {
      if (row.step < machine_.warmup) continue;
      if (row.is == RowIs::kCall && jitter_.Uniform(0, 1) < machine_.lost_calls)
        continue;
      AddRow(row);
    }
    if (machine_.dropped_records > 0) {
      builder_.Add(Loss{.name = "buffer-full",
                        .detail = "Device records were dropped",
                        .count = machine_.dropped_records});
    }
    for (const DeviceTask& task : code_.tasks) {
      if (task.step >= machine_.warmup || IsBacklog(task)) AddTask(task);
    }
    if (machine_.live) {
      AddLiveRows(machine_, code_, usage, rank_, skew_ns_, builder_);
    }
    return builder_.Build();
  }

 private:
  int64_t Host(double ns) const { return SinceEpoch(ns + skew_ns_); }
  int64_t OnDevice(double ns) const { return Host(ns + device_skew_ns_); }
  // Kineto keeps device work that starts in the window, but not the earlier
  // calls that launched it.
  bool IsBacklog(const DeviceTask& task) const {
    return !machine_.live && task.step < machine_.warmup &&
           task.begin >= window_begin_;
  }
  RowId ThreadOf(const Row& row) {
    if (!row.autograd) return training_;
    const RowId thread = builder_.ThreadRow(100 + rank_, 900 + rank_);
    builder_.thread(thread).torch_thread = 2;
    return thread;
  }

  void Describe() {
    RunInfo& run = builder_.run();
    run.name = "simulated";
    run.host =
        machine_.hosts > 1
            ? "host" + std::to_string(rank_ * machine_.hosts / machine_.ranks)
            : "simulator";
    run.pid = 100 + rank_;
    run.rank = rank_;
    run.world_size = machine_.ranks;
    run.backend = machine_.ranks > 1 ? "nccl" : "";
    run.producer = machine_.live ? "stepscope" : "torch.profiler";
    // A recorder does not slow simulated hosts down.
    if (!machine_.live && !machine_.gpu.empty()) run.op_cost_ns = 1;
    run.record_shapes = true;
    if (!machine_.gpu.empty()) {
      stepscope::Device device{
          .ordinal = rank_,
          .name = machine_.gpu,
          .vendor = "Nvidia",
          .memory_bytes = static_cast<int64_t>(machine_.device_bytes)};
      if (machine_.clock_mhz > 0) {
        device.clock_khz = std::llround(machine_.clock_mhz * 1000);
        device.memory_bandwidth_bytes_per_s =
            std::llround(machine_.bandwidth * 1e9);
      }
      device.compute_major = static_cast<int>(machine_.compute_capability);
      device.compute_minor =
          static_cast<int>(std::lround(10 * machine_.compute_capability) % 10);
      device.sm_count = machine_.sms;
      device.max_threads_per_sm = 2048;
      device.warp_size = 32;
      for (int i = 0; i < machine_.gpus; ++i) {
        run.devices.push_back(device);
        ++device.ordinal;
      }
    }
    if (!machine_.live) return;
    run.training_thread = training_;
    run.usable_cores = machine_.cores;
    run.local_ranks = 1;  // each rank has its own cores
    run.profile_memory = true;
    for (const Row& row : code_.rows) {
      const bool timed = row.is == RowIs::kStep && row.step < machine_.warmup &&
                         row.step + 3 >= machine_.warmup;
      if (timed && row.step > 0) {
        run.wait_step_ns.push_back(std::llround(row.end - row.begin));
      }
    }
  }

  void Watch() {
    for (Kind kind : {Kind::kStep, Kind::kRange, Kind::kOp, Kind::kOpShapes,
                      Kind::kCommunication, Kind::kOverhead}) {
      builder_.Watch(kind);
    }
    if (!machine_.gpu.empty()) {
      for (Kind kind :
           {Kind::kRuntimeCall, Kind::kKernel, Kind::kCopy, Kind::kMemset}) {
        builder_.Watch(kind);
      }
      if (machine_.sync_rows) builder_.Watch(Kind::kSync);
    }
    if (machine_.samples) builder_.Watch(Kind::kDeviceSample);
    if (machine_.live) {
      for (Kind kind :
           {Kind::kSettings, Kind::kHostUsage, Kind::kLoader, Kind::kMemory}) {
        builder_.Watch(kind);
      }
    }
  }

  void AddRow(const Row& row) {
    const int64_t begin = Host(row.begin), end = Host(row.end);
    const RowId thread = ThreadOf(row);
    switch (row.is) {
      case RowIs::kStep: {
        builder_.Add(Step{begin, end, row.step, thread});
        RunInfo& run = builder_.run();
        if (!machine_.live) return;
        if (run.window_begin_ns == 0) run.window_begin_ns = begin;
        run.window_end_ns = end;
        return;
      }
      case RowIs::kRange: {
        builder_.Add(Range{.begin_ns = begin,
                           .end_ns = end,
                           .name = builder_.Intern(row.name),
                           .detail = builder_.Intern(row.detail),
                           .thread = thread,
                           .kind = row.range_kind});
        return;
      }
      case RowIs::kCall:
        builder_.Add(RuntimeCall{.begin_ns = begin,
                                 .end_ns = end,
                                 .correlation = row.correlation,
                                 .name = builder_.Intern(row.name),
                                 .thread = thread});
        if (machine_.sync_rows) AddSync(row, begin, end);
        return;
      case RowIs::kOverhead:
        builder_.Add(Overhead{begin, end, builder_.Intern(row.name), thread});
        return;
      case RowIs::kMemory:
        AddMemory(row, begin, thread);
        return;
      case RowIs::kOp:
        AddOp(row, begin, end, thread);
        return;
    }
  }

  void AddOp(const Row& row, int64_t begin, int64_t end, RowId thread) {
    Op op{.begin_ns = begin,
          .end_ns = end,
          .sequence = row.sequence,
          .name = builder_.Intern(row.name),
          .thread = thread,
          .kind = row.op_kind};
    if (row.op_kind == OpKind::kBackward && row.sequence >= 0) {
      op.forward_thread = kTrainingTorchThread;
    }
    if (!row.inputs.empty()) {
      op.inputs = builder_.InternInputs(InputsOf(builder_, row.inputs));
    }
    builder_.Add(op);
    if (row.collective < 0 || row.kind.empty()) return;
    const double width = row.dtype == "BFloat16" || row.dtype == "Half" ? 2 : 4;
    const auto elements = static_cast<int64_t>(row.bytes / width);
    const RankGroup& group = machine_.groups[row.group];
    std::string ranks = "[";
    for (size_t i = 0; i < group.ranks.size(); ++i) {
      ranks += (i > 0 ? ", " : "") + std::to_string(group.ranks[i]);
    }
    builder_.Add(
        Communication{.begin_ns = begin,
                      .end_ns = end,
                      .name = builder_.Intern(row.kind),
                      .dtype = builder_.Intern(row.dtype),
                      .group_name = builder_.Intern(std::to_string(row.group)),
                      .group_description = builder_.Intern(group.description),
                      .group_ranks = builder_.Intern(ranks + "]"),
                      .in_elements = elements,
                      .out_elements = elements,
                      .sequence = row.collective,
                      .group_size = static_cast<int32_t>(group.ranks.size()),
                      .thread = thread});
  }

  void AddSync(const Row& row, int64_t begin, int64_t end) {
    const char* name = row.name == "cudaStreamSynchronize"   ? "Stream Sync"
                       : row.name == "cudaEventSynchronize"  ? "Event Sync"
                       : row.name == "cudaDeviceSynchronize" ? "Context Sync"
                       : row.name == "cudaStreamWaitEvent" ? "Stream Wait Event"
                                                           : nullptr;
    if (name == nullptr) return;
    Sync sync{.begin_ns = begin,
              .end_ns = end,
              .correlation = row.correlation,
              .name = builder_.Intern(name),
              .device = rank_,
              .stream = 7};
    const auto wait = stream_waits_.find(row.correlation);
    if (wait != stream_waits_.end()) {
      sync.stream = wait->second->stream;
      if (wait->second->mark >= 0) {
        const DeviceTask& mark = code_.tasks[wait->second->mark];
        sync.wait_on_stream = mark.stream;
        sync.wait_on_record_correlation = mark.correlation;
      }
    }
    builder_.Add(sync);
  }

  void AddMemory(const Row& row, int64_t time, RowId thread) {
    const auto bytes = static_cast<int64_t>(row.bytes);
    allocated_ += bytes;
    reserved_ = std::max(reserved_, allocated_);
    // A release frees the youngest block of its size.
    std::vector<uint64_t>& live = live_[std::abs(bytes)];
    if (bytes >= 0) live.push_back(next_address_ += kAddressesApart);
    const uint64_t address = live.empty() ? 0 : live.back();
    if (bytes < 0 && !live.empty()) live.pop_back();
    builder_.Add(Allocation{.time_ns = time,
                            .address = address,
                            .bytes = bytes,
                            .total_allocated_bytes = allocated_,
                            .total_reserved_bytes = reserved_,
                            .device_type = machine_.gpu.empty() ? 0 : 1,
                            .device = machine_.gpu.empty() ? -1 : rank_,
                            .thread = thread});
  }

  void AddTask(const DeviceTask& task) {
    if (task.begin < 0) return;
    if (task.is == WorkIs::kMark || task.is == WorkIs::kWait ||
        task.is == WorkIs::kDelay) {
      return;
    }
    DeviceWork work{.begin_ns = OnDevice(task.begin),
                    .end_ns = OnDevice(task.end),
                    .correlation = task.correlation,
                    .device = rank_ + task.device,
                    .stream = task.stream,
                    .context = 1};
    const NameId name = builder_.Intern(task.name);
    if (task.is == WorkIs::kCopy) {
      Copy copy;
      static_cast<DeviceWork&>(copy) = work;
      copy.name = name;
      copy.source = task.source;
      copy.destination = task.destination;
      copy.bytes = static_cast<int64_t>(task.bytes);
      copy.is_async = task.is_async;
      builder_.Add(copy);
    } else if (task.is == WorkIs::kMemset) {
      Memset memset;
      static_cast<DeviceWork&>(memset) = work;
      memset.name = name;
      memset.bytes = static_cast<int64_t>(task.bytes);
      builder_.Add(memset);
    } else {
      Kernel kernel;
      static_cast<DeviceWork&>(kernel) = work;
      kernel.name = name;
      kernel.grid = task.grid;
      kernel.block = task.block;
      kernel.blocks_per_sm = task.waves;
      kernel.warps_per_sm =
          task.waves * static_cast<float>(task.block[0]) / 32.0f;
      kernel.occupancy_frac = task.occupancy;
      kernel.registers_per_thread = task.registers;
      kernel.shared_memory_bytes = task.shared_bytes;
      kernel.graph = task.graph;
      builder_.Add(kernel);
    }
  }

  const Machine& machine_;
  const RankCode& code_;
  int rank_;
  Jitter& jitter_;
  TraceBuilder builder_;
  RowId training_ = kNone;
  double skew_ns_ = 0, device_skew_ns_ = 0;
  double window_begin_ = 0;  // start of the recorded steps
  int64_t allocated_ = 0, reserved_ = 0;
  std::map<int64_t, const DeviceTask*> stream_waits_;  // by correlation
  std::map<int64_t, std::vector<uint64_t>> live_;  // addresses by size in bytes
  uint64_t next_address_ = 0;
};

}  // namespace

Trace RecordingOf(const Machine& machine, const RankCode& code, int rank,
                  const std::vector<Rank::Usage>& usage, Jitter& jitter) {
  return Recorder(machine, code, rank, jitter).Make(usage);
}

double TrueStepNs(const Machine& machine, const RankCode& code) {
  std::vector<double> ends(machine.warmup + machine.steps, 0);
  double begin = 0;
  for (const Row& row : code.rows) {
    if (row.is != RowIs::kStep) continue;
    ends[row.step] = std::max(ends[row.step], row.end);
    if (row.step == 0) begin = row.begin;
  }
  for (const DeviceTask& task : code.tasks) {
    ends[task.step] = std::max(ends[task.step], task.end);
  }
  if (machine.warmup > 0) begin = ends[machine.warmup - 1];
  return (ends.back() - begin) / machine.steps;
}

}  // namespace stepscope::simulator
