#include <absl/status/status.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "support/simulator/program_coder.h"

namespace stepscope::simulator {
namespace {

constexpr double kLaunchNs = 4'000;
constexpr double kCopyCallNs = 4'500;
constexpr double kEventCallNs = 1'000;
constexpr double kSyncCallNs = 3'000;
constexpr double kColdKernelNs = 400'000;
constexpr double kStagedBytes = 64 * 1024;

const char* KindText(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPageable:
      return "Pageable";
    case MemoryKind::kPinned:
      return "Pinned";
    default:
      return "Device";
  }
}

// Reads "64x2x1" as up to three numbers.
void ReadShape(const Statement& s, const char* name,
               std::array<int32_t, 3>& shape) {
  const auto found = s.options.find(name);
  if (found == s.options.end()) return;
  shape = {1, 1, 1};
  size_t at = 0;
  for (int32_t& side : shape) {
    side = std::atoi(found->second.c_str() + at);
    at = found->second.find('x', at);
    if (at == std::string::npos) break;
    ++at;
  }
}

}  // namespace

void Coder::Kernel(const Statement& s) {
  if (machine_.gpu.empty()) return Fail(s, "a kernel needs a gpu");
  const std::string name = s.Word(0);
  if (seen_kernels_.insert(name).second) {  // loads code on first use
    const int row =
        Open({.is = RowIs::kOverhead, .name = "Lazy Function Loading"});
    Work(kColdKernelNs);
    Close(row);
  }
  const int call = OpenCall("cudaLaunchKernel");
  Emit(Do::kAwaitRoom);
  Work(kLaunchNs);
  Put(KernelTask(s, 0));
  Close(call);
}

DeviceTask Coder::KernelTask(const Statement& s, int64_t graph) {
  DeviceTask task{.name = s.Word(0),
                  .stream = StreamOf(s),
                  .device = DeviceOf(s),
                  .graph = graph};
  task.amount = s.Number(1) * jitter_.Around(machine_.device_jitter);
  if (step_ >= machine_.warmup + machine_.throttle_after &&
      (machine_.throttle_rank < 0 || machine_.throttle_rank == rank_)) {
    task.amount *= 1 + machine_.throttle_frac;
  }
  task.fill = s.Option("fill", 1);
  task.grid = {machine_.sms * 4, 1, 1};
  ReadShape(s, "grid", task.grid);
  ReadShape(s, "block", task.block);
  const double blocks =
      1.0 * task.grid[0] * task.grid[1] * task.grid[2] / machine_.sms;
  task.waves = static_cast<float>(s.Option("waves", blocks));
  task.occupancy = static_cast<float>(s.Option("occupancy", 0.5));
  task.registers = static_cast<int32_t>(s.Option("registers", -1));
  task.shared_bytes = static_cast<int32_t>(s.Option("shared", -1));
  return task;
}

void Coder::Graph(const Statement& s) {
  const int call = OpenCall("cudaGraphLaunch");
  Work(8'000);
  ++graphs_;
  for (const Statement& kernel : s.body) {
    if (kernel.verb != "kernel") return Fail(kernel, "a graph holds kernels");
    DeviceTask task = KernelTask(kernel, graphs_);
    task.stream = StreamOf(s);
    Put(std::move(task));
  }
  Close(call);
}

void Coder::Memset(const Statement& s) {
  const int call = OpenCall("cudaMemsetAsync");
  Work(kLaunchNs);
  Put({.is = WorkIs::kMemset,
       .name = "Memset (Device)",
       .stream = StreamOf(s),
       .device = DeviceOf(s),
       .amount = 1'000 + s.Number(0) / machine_.bandwidth,
       .fill = 0.5,
       .bytes = s.Number(0)});
  Close(call);
}

void Coder::SyncCall(const std::string& name, Do what, int index) {
  const int call = OpenCall(name);
  Work(kSyncCallNs);
  Emit(what, 0, index);
  Work(kSyncCallNs);
  Close(call);
}

void Coder::Copy(const Statement& s) {
  const std::string way = s.Word(0);
  const MemoryKind host =
      s.Says("pinned") ? MemoryKind::kPinned : MemoryKind::kPageable;
  DeviceTask task{
      .is = WorkIs::kCopy, .stream = StreamOf(s), .device = DeviceOf(s)};
  task.bytes = s.Number(1);
  task.source = way == "h2d" ? host : MemoryKind::kDevice;
  task.destination = way == "d2h" ? host : MemoryKind::kDevice;
  task.name = std::string("Memcpy ") +
              (way == "h2d"   ? "HtoD"
               : way == "d2h" ? "DtoH"
                              : "DtoD") +
              " (" + KindText(task.source) + " -> " +
              KindText(task.destination) + ")";
  const bool pageable = way != "d2d" && host == MemoryKind::kPageable;
  const int call = OpenCall("cudaMemcpyAsync");
  Work(kCopyCallNs);
  if (way == "d2d") {
    task.amount = 1'000 + 2 * task.bytes / machine_.bandwidth;
    task.fill = 0.6;
  } else {
    task.on_bus = true;
    task.upload = way == "h2d";
    task.rate = pageable ? machine_.pageable : machine_.pcie;
    task.amount =
        (task.bytes + 800 * task.rate) * jitter_.Around(machine_.device_jitter);
  }
  const int index = Put(std::move(task));
  if (pageable && (way == "d2h" || code_.tasks[index].bytes > kStagedBytes)) {
    Emit(Do::kAwaitWork, 0, index);
    Work(2'000);
  }
  Close(call);
  if (!s.Says("async") && way != "d2d") {
    SyncCall("cudaStreamSynchronize", Do::kAwaitStream,
             static_cast<int>(StreamOf(s)));
  }
}

void Coder::Item(const Statement& s) {
  const int outer = OpenOp("aten::item", s);
  Work(1'500);
  const int inner = OpenOp("aten::_local_scalar_dense", s);
  Work(2'500);
  Statement copy = s;
  copy.words = {"d2h", "4", s.Says("pageable") ? "pageable" : "pinned"};
  Copy(copy);
  Work(1'000);
  Close(inner);
  Close(outer);
}

int Coder::GroupOf(const Statement& s) {
  const std::string name = s.Text("group", "");
  for (size_t i = 0; i < machine_.groups.size(); ++i) {
    const RankGroup& group = machine_.groups[i];
    if (group.name == name && std::ranges::count(group.ranks, rank_) > 0) {
      return static_cast<int>(i);
    }
  }
  Fail(s, "no group " + name + " has this rank");
  return 0;
}

void Coder::Add(const Statement& s, const Exchange& exchange) {
  const int row =
      Open({.name = "record_param_comms",
            .collective = exchange.meets_as[1],
            .group = exchange.meets_as[0],
            .bytes = s.Number(1),
            .dtype = s.Text("dtype", "Float"),
            // Kineto's names.
            .kind = s.Says("unsized")               ? ""
                    : exchange.name == "all_reduce" ? "allreduce"
                                                    : exchange.name});
  const int range = Open({.is = RowIs::kRange,
                          .name = "nccl:" + exchange.name,
                          .range_kind = RangeKind::kCollective});
  Work(8'000);
  Mark("before collective", s, 7);
  Wait("before collective", s, exchange.stream);
  const int call = OpenCall("cudaLaunchKernelExC");
  Emit(Do::kAwaitRoom);
  Work(kLaunchNs);
  DeviceTask task{.is = WorkIs::kCollective, .stream = exchange.stream};
  task.name = exchange.kernel;
  task.meets_as = exchange.meets_as;
  task.bytes = s.Number(1);
  task.amount = exchange.amount * jitter_.Around(machine_.device_jitter);
  task.fill = 0.12;
  task.grid = {24, 1, 1};
  task.block = {544, 1, 1};
  task.waves = 24.0f / machine_.sms;
  Put(std::move(task));
  Close(call);
  Work(4'000);
  if (*exchange.mark != 0) Mark(exchange.mark, s, exchange.stream);
  Close(range);
  Close(row);
}

void Coder::Collective(const Statement& s) {
  const std::string kind = s.Word(0);
  const int group = GroupOf(s);
  const char* kernel = kind == "broadcast"    ? "Broadcast_RING_LL"
                       : kind == "all_to_all" ? "SendRecv"
                       : kind == "all_gather" ? "AllGather_RING_LL"
                       : kind == "reduce_scatter"
                           ? "ReduceScatter_Sum_f32_RING_LL"
                           : "AllReduce_Sum_f32_RING_LL";
  const auto ranks = static_cast<double>(machine_.groups[group].ranks.size());
  Add(s, {.name = kind,
          .kernel = std::string("ncclDevKernel_") + kernel + "(ncclDevComm*)",
          .amount = machine_.network_latency_ns +
                    2 * (ranks - 1) / ranks * s.Number(1) /
                        s.Option("rate", machine_.network),
          .stream = StreamOf(s, 20),
          .meets_as = {group, ordinals_[{group, -1, -1}]++, -1, -1}});
}

// Each peer and direction has its own stream for messages.
void Coder::Message(const Statement& s) {
  const bool sends = s.verb == "send";
  const int peer = static_cast<int>(s.Number(0));
  const int group = GroupOf(s);
  if (peer == rank_ ||
      std::ranges::count(machine_.groups[group].ranks, peer) == 0) {
    return Fail(s, "the other rank is not in the group");
  }
  const int from = sends ? rank_ : peer, to = sends ? peer : rank_;
  Add(s,
      {.name = s.verb,
       .kernel = "ncclDevKernel_SendRecv(ncclDevComm*)",
       .amount = machine_.network_latency_ns + s.Number(1) / machine_.network,
       .stream = 30 + 2 * peer + (sends ? 1 : 0),
       .mark = sends ? "" : "collectives",
       .meets_as = {group, ordinals_[{group, from, to}]++, from, to}});
}

int Coder::DeviceOf(const Statement& s) {
  const int device = static_cast<int>(s.Option("device", 0));
  if (device < 0 || device >= machine_.gpus) {
    Fail(s, "the machine has no such gpu");
    return 0;
  }
  return device;
}

void Coder::Mark(const std::string& event, const Statement& s, int64_t stream) {
  const int call = OpenCall("cudaEventRecord");
  Work(kEventCallNs);
  marks_[event] =
      Put({.is = WorkIs::kMark, .stream = stream, .device = DeviceOf(s)});
  Close(call);
}

void Coder::Delay(const Statement& s) {
  const int call = OpenCall("cudaLaunchHostFunc");
  Work(kEventCallNs);
  Put({.is = WorkIs::kDelay,
       .stream = StreamOf(s),
       .device = DeviceOf(s),
       .amount = s.Number(0) * jitter_.Around(machine_.device_jitter),
       .fill = 0});
  Close(call);
}

void Coder::Wait(const std::string& event, const Statement& s, int64_t stream) {
  const int call = OpenCall("cudaStreamWaitEvent");
  Work(kEventCallNs);
  const auto mark = marks_.find(event);
  Put({.is = WorkIs::kWait,
       .stream = stream,
       .device = DeviceOf(s),
       .mark = mark == marks_.end() ? -1 : mark->second});
  Close(call);
}

void Coder::Sync(const Statement& s) {
  const std::string what = s.Word(0);
  if (what == "device") {
    SyncCall("cudaDeviceSynchronize", Do::kAwaitDevice, 0);
  } else if (what == "stream") {
    SyncCall("cudaStreamSynchronize", Do::kAwaitStream,
             static_cast<int>(StreamOf(s)));
  } else if (marks_.contains(what)) {
    SyncCall("cudaEventSynchronize", Do::kAwaitWork, marks_[what]);
  } else {
    Fail(s, "no event " + what + " was recorded");
  }
}

}  // namespace stepscope::simulator
