#include "support/simulator/program_code.h"

#include <absl/status/status.h>

#include <cmath>
#include <functional>
#include <set>
#include <utility>

namespace stepscope::simulator {
namespace {

constexpr double kLaunchNs = 4'000;
constexpr double kCopyCallNs = 4'500;
constexpr double kEventCallNs = 1'000;
constexpr double kSyncCallNs = 3'000;
constexpr double kWakeUpNs = 12'000;  // of a thread that slept
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

RangeKind RangeKindOf(const std::string& word) {
  if (word == "phase") return RangeKind::kPhase;
  if (word == "loader") return RangeKind::kLoader;
  if (word == "optimizer") return RangeKind::kOptimizer;
  if (word == "module") return RangeKind::kModule;
  if (word == "collective") return RangeKind::kCollective;
  if (word == "nvtx") return RangeKind::kNvtx;
  return RangeKind::kUser;
}

// "64x2x1" as up to three numbers.
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

// Turns statements into instructions, one step after the other.
class Coder {
 public:
  Coder(const std::vector<Statement>& program, const Machine& machine, int rank,
        Jitter& jitter)
      : machine_(machine), rank_(rank), jitter_(jitter) {
    for (const Statement& s : program) {
      if (s.verb == "define") defined_[s.Word(0)] = &s.body;
      if (s.verb == "step") step_body_ = &s.body;
    }
  }

  absl::StatusOr<RankCode> All() {
    for (step_ = 0; step_ < machine_.warmup + machine_.steps; ++step_) {
      const int row = Open({.is = RowIs::kStep});
      Body(*step_body_);
      Close(row);
    }
    if (!status_.ok()) return status_;
    return std::move(code_);
  }

 private:
  void Fail(const Statement& s, const std::string& what) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError("line " + std::to_string(s.line) +
                                         ": " + what);
  }

  void Body(const std::vector<Statement>& body) {
    for (const Statement& s : body) One(s);
  }

  ThreadCode& Here() { return on_autograd_ ? code_.autograd : code_.training; }
  void Emit(Do what, double ns = 0, int index = 0) {
    Here().code.push_back({what, ns, index});
  }
  void Work(double ns) {
    if (ns > 0) Emit(Do::kWork, ns * jitter_.Around(machine_.host_jitter));
  }
  int Open(Row row) {
    row.step = step_;
    row.autograd = on_autograd_;
    const int index = static_cast<int>(code_.rows.size());
    code_.rows.push_back(std::move(row));
    Emit(Do::kOpen, 0, index);
    return index;
  }
  void Close(int row) { Emit(Do::kClose, 0, row); }
  bool Recorded() const { return step_ >= machine_.warmup; }

  int OpenCall(const std::string& name) {
    return Open(
        {.is = RowIs::kCall, .name = name, .correlation = ++correlation_});
  }

  int Put(DeviceTask task) {
    task.step = step_;
    task.correlation = correlation_;
    const int index = static_cast<int>(code_.tasks.size());
    code_.tasks.push_back(std::move(task));
    Emit(Do::kPut, 0, index);
    return index;
  }
  static int64_t StreamOf(const Statement& s, int64_t other = 7) {
    return static_cast<int64_t>(s.Option("stream", other));
  }

  // Own time of an op, in equal parts around what it holds.
  void Around(double ns, const std::vector<Statement>& body) {
    const double part = ns / static_cast<double>(body.size() + 1);
    Work(part);
    for (const Statement& s : body) {
      One(s);
      Work(part);
    }
  }

  int OpenOp(const std::string& name, const Statement& s) {
    Row row{.name = name};
    const auto in = s.options.find("in");
    if (in != s.options.end()) row.inputs = in->second;
    if (!on_autograd_ && !in_backward_ && no_grad_ == 0) {
      row.sequence = next_sequence_;
    }
    const int index = Open(std::move(row));
    if (Recorded()) Work(machine_.record_cost_ns);
    return index;
  }

  void Op(const Statement& s) {
    const int row = OpenOp(s.Word(0), s);
    if (s.Says("parallel")) {
      Emit(Do::kPool, s.Number(1) * jitter_.Around(machine_.host_jitter));
      Body(s.body);
    } else {
      Around(s.Number(1), s.body);
    }
    if (s.Says("grad") && no_grad_ == 0)
      open_nodes_.push_back(next_sequence_++);
    Close(row);
  }

  void Node(const Statement& s, const std::string& name, int64_t sequence) {
    const int outer =
        Open({.name = "autograd::engine::evaluate_function: " + name,
              .op_kind = OpKind::kBackward,
              .sequence = sequence});
    Work(s.Number(s.verb == "node" ? 1 : 0) / 2);
    const int inner = Open(
        {.name = name, .op_kind = OpKind::kBackward, .sequence = sequence});
    Around(s.Number(s.verb == "node" ? 1 : 0) / 2, s.body);
    Close(inner);
    Close(outer);
  }

  void Backward(const Statement& s) {
    Work(15'000);
    in_backward_ = true;
    if (machine_.gpu.empty()) {
      Body(s.body);  // the engine runs a CPU graph on the calling thread
    } else {
      const int turn = ++turns_;
      Emit(Do::kHandOver, 0, turn);
      on_autograd_ = true;
      Emit(Do::kAwaitTurn, 0, turn);
      Work(kWakeUpNs);
      Body(s.body);
      Emit(Do::kFinish, 0, turn);
      on_autograd_ = false;
      Emit(Do::kAwaitFinish, 0, turn);
      Work(kWakeUpNs);
    }
    in_backward_ = false;
    Work(5'000);
  }

  void Kernel(const Statement& s) {
    if (machine_.gpu.empty()) return Fail(s, "a kernel needs a gpu");
    const std::string name = s.Word(0);
    if (seen_kernels_.insert(name).second) {  // code is loaded on first use
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

  DeviceTask KernelTask(const Statement& s, int64_t graph) {
    DeviceTask task{.name = s.Word(0), .stream = StreamOf(s), .graph = graph};
    task.amount = s.Number(1) * jitter_.Around(machine_.device_jitter);
    task.fill = s.Option("fill", 1);
    task.grid = {machine_.sms * 4, 1, 1};
    ReadShape(s, "grid", task.grid);
    ReadShape(s, "block", task.block);
    const double blocks =
        1.0 * task.grid[0] * task.grid[1] * task.grid[2] / machine_.sms;
    task.waves = static_cast<float>(s.Option("waves", blocks));
    task.occupancy = static_cast<float>(s.Option("occupancy", 0.5));
    return task;
  }

  void Graph(const Statement& s) {
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

  void SyncCall(const std::string& name, Do what, int index) {
    const int call = OpenCall(name);
    Work(kSyncCallNs);
    Emit(what, 0, index);
    Work(kSyncCallNs);
    Close(call);
  }

  void Copy(const Statement& s) {
    const std::string way = s.Word(0);
    const MemoryKind host =
        s.Says("pinned") ? MemoryKind::kPinned : MemoryKind::kPageable;
    DeviceTask task{.is = WorkIs::kCopy, .stream = StreamOf(s)};
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
      task.amount = (task.bytes + 800 * task.rate) *
                    jitter_.Around(machine_.device_jitter);
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

  void Item(const Statement& s) {
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

  void Collective(const Statement& s) {
    const int64_t stream = StreamOf(s, 20);
    const int ordinal = collectives_++;
    const auto dtype = s.options.find("dtype");
    const int row =
        Open({.name = "record_param_comms",
              .collective = ordinal,
              .bytes = s.Number(1),
              .dtype = dtype == s.options.end() ? "Float" : dtype->second});
    const int range = Open({.is = RowIs::kRange,
                            .name = "nccl:" + s.Word(0),
                            .range_kind = RangeKind::kCollective});
    Work(8'000);
    Mark("before collective", 7);
    Wait("before collective", stream);
    const int call = OpenCall("cudaLaunchKernelExC");
    Emit(Do::kAwaitRoom);
    Work(kLaunchNs);
    DeviceTask task{.is = WorkIs::kCollective, .stream = stream};
    task.name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)";
    if (s.Word(0) == "broadcast")
      task.name = "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)";
    if (s.Word(0) == "all_to_all")
      task.name = "ncclDevKernel_SendRecv(ncclDevComm*)";
    task.collective = ordinal;
    task.bytes = s.Number(1);
    const double ranks = machine_.ranks;
    task.amount = (machine_.network_latency_ns +
                   2 * (ranks - 1) / ranks * task.bytes / machine_.network) *
                  jitter_.Around(machine_.device_jitter);
    task.fill = 0.12;
    task.grid = {24, 1, 1};
    task.block = {544, 1, 1};
    task.waves = 24.0f / machine_.sms;
    Put(std::move(task));
    Close(call);
    Work(4'000);
    Mark("collectives", stream);
    Close(range);
    Close(row);
  }

  void Mark(const std::string& event, int64_t stream) {
    const int call = OpenCall("cudaEventRecord");
    Work(kEventCallNs);
    marks_[event] = Put({.is = WorkIs::kMark, .stream = stream});
    Close(call);
  }
  void Wait(const std::string& event, int64_t stream) {
    const int call = OpenCall("cudaStreamWaitEvent");
    Work(kEventCallNs);
    const auto mark = marks_.find(event);
    Put({.is = WorkIs::kWait,
         .stream = stream,
         .mark = mark == marks_.end() ? -1 : mark->second});
    Close(call);
  }

  void Sync(const Statement& s) {
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

  void Range(const Statement& s) {
    const bool optimizer = s.Word(0) == "optimizer";
    const int row = Open({.is = RowIs::kRange,
                          .name = s.Word(1),
                          .range_kind = RangeKindOf(s.Word(0))});
    no_grad_ += optimizer;
    Work(1'000);
    Body(s.body);
    no_grad_ -= optimizer;
    Close(row);
  }

  void Load() {
    const char* name =
        machine_.workers > 0
            ? "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            : "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    const int row = Open(
        {.is = RowIs::kRange, .name = name, .range_kind = RangeKind::kLoader});
    if (machine_.workers > 0) {
      Emit(Do::kTake);
      Work(30'000);
    } else {
      if (machine_.batch_io_ns > 0) Emit(Do::kSleep, machine_.batch_io_ns);
      Emit(Do::kWork,
           machine_.batch_cpu_ns * jitter_.Around(machine_.loader_jitter));
    }
    Close(row);
  }

  void Overhead(const Statement& s, RowIs is, const std::string& name,
                double ns) {
    const int row = Open({.is = is, .name = name});
    Work(ns);
    Close(row);
    (void)s;
  }

  void One(const Statement& s) {
    static const std::map<std::string, void (Coder::*)(const Statement&)>
        kVerbs = {{"op", &Coder::Op},
                  {"backward", &Coder::Backward},
                  {"kernel", &Coder::Kernel},
                  {"graph", &Coder::Graph},
                  {"copy", &Coder::Copy},
                  {"item", &Coder::Item},
                  {"collective", &Coder::Collective},
                  {"sync", &Coder::Sync},
                  {"range", &Coder::Range}};
    if (!status_.ok()) return;
    const auto known = kVerbs.find(s.verb);
    if (known != kVerbs.end()) return (this->*known->second)(s);
    if (Flow(s) || Small(s)) return;
    Fail(s, "\"" + s.verb + "\" is no statement");
  }

  // Statements that decide which others run.
  bool Flow(const Statement& s) {
    if (s.verb == "repeat") {
      const int times = static_cast<int>(s.Number(0));
      for (int i = 0; i < times && status_.ok(); ++i) Body(s.body);
    } else if (s.verb == "every") {
      const int period = std::max(1, static_cast<int>(s.Number(0)));
      const int offset = static_cast<int>(s.Option("offset", 0));
      if (step_ % period == offset % period) Body(s.body);
    } else if (s.verb == "rank") {
      if (rank_ == static_cast<int>(s.Number(0))) Body(s.body);
    } else if (s.verb == "no_grad") {
      ++no_grad_;
      Body(s.body);
      --no_grad_;
    } else if (s.verb == "do") {
      const auto body = defined_.find(s.Word(0));
      if (body == defined_.end()) {
        Fail(s, s.Word(0) + " is not defined");
      } else if (++depth_ > 50) {
        Fail(s, s.Word(0) + " uses itself");
      } else {
        Body(*body->second);
      }
      --depth_;
    } else {
      return false;
    }
    return true;
  }

  bool Small(const Statement& s) {
    if (s.verb == "load") {
      Load();
    } else if (s.verb == "host") {
      Work(s.Number(0));
    } else if (s.verb == "io") {
      Emit(Do::kSleep, s.Number(0));
    } else if (s.verb == "node") {
      if (open_nodes_.empty()) {
        Fail(s, "there is no node left to visit");
        return true;
      }
      const int64_t sequence = open_nodes_.back();
      open_nodes_.pop_back();
      Node(s, s.Word(0), sequence);
    } else if (s.verb == "accumulate") {
      Node(s, "torch::autograd::AccumulateGrad", -1);
    } else if (s.verb == "memset") {
      const int call = OpenCall("cudaMemsetAsync");
      Work(kLaunchNs);
      Put({.is = WorkIs::kMemset,
           .name = "Memset (Device)",
           .stream = StreamOf(s),
           .amount = 1'000 + s.Number(0) / machine_.bandwidth,
           .fill = 0.5,
           .bytes = s.Number(0)});
      Close(call);
    } else if (s.verb == "record") {
      Mark(s.Word(0), StreamOf(s));
    } else if (s.verb == "wait") {
      Wait(s.Word(0), StreamOf(s));
    } else if (s.verb == "join") {
      Wait("collectives", 7);
    } else if (s.verb == "call") {
      const int call = OpenCall(s.Word(0));
      Work(s.Number(1));
      Close(call);
    } else if (s.verb == "cuda_free") {
      const int call = OpenCall("cudaFree");
      Emit(Do::kAwaitDevice);
      Work(s.Number(0));
      Close(call);
    } else if (s.verb == "gc") {
      Overhead(s, RowIs::kRange, "Python GC", s.Number(0));
    } else if (s.verb == "overhead") {
      Overhead(s, RowIs::kOverhead, s.Word(0), s.Number(1));
    } else if (s.verb == "memory") {
      const int row = Open({.is = RowIs::kMemory, .bytes = s.Number(0)});
      Close(row);
    } else {
      return false;
    }
    return true;
  }

  const Machine& machine_;
  int rank_;
  Jitter& jitter_;
  RankCode code_;
  absl::Status status_;
  std::map<std::string, const std::vector<Statement>*> defined_;
  const std::vector<Statement>* step_body_ = nullptr;
  std::map<std::string, int> marks_;  // the latest mark of an event
  std::set<std::string> seen_kernels_;
  std::vector<int64_t> open_nodes_;
  int64_t next_sequence_ = 100, correlation_ = 1000, graphs_ = 0;
  int step_ = 0, turns_ = 0, collectives_ = 0, no_grad_ = 0, depth_ = 0;
  bool on_autograd_ = false, in_backward_ = false;
};

}  // namespace

absl::StatusOr<RankCode> CodeOf(const std::vector<Statement>& program,
                                const Machine& machine, int rank,
                                Jitter& jitter) {
  return Coder(program, machine, rank, jitter).All();
}

}  // namespace stepscope::simulator
