#include "support/simulator/program_coder.h"

#include <absl/status/status.h>

#include <algorithm>
#include <utility>

namespace stepscope::simulator {
namespace {

constexpr double kWakeUpNs = 12'000;  // of a sleeping thread

RangeKind RangeKindOf(const std::string& word) {
  if (word == "phase") return RangeKind::kPhase;
  if (word == "loader") return RangeKind::kLoader;
  if (word == "optimizer") return RangeKind::kOptimizer;
  if (word == "module") return RangeKind::kModule;
  if (word == "collective") return RangeKind::kCollective;
  if (word == "nvtx") return RangeKind::kNvtx;
  return RangeKind::kUser;
}

}  // namespace

absl::StatusOr<RankCode> Coder::All() {
  for (step_ = 0; step_ < machine_.warmup + machine_.steps; ++step_) {
    const int row = Open({.is = RowIs::kStep});
    Body(*step_body_);
    Close(row);
  }
  if (!status_.ok()) return status_;
  return std::move(code_);
}

void Coder::Fail(const Statement& s, const std::string& what) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError("line " + std::to_string(s.line) + ": " +
                                       what);
}

void Coder::Body(const std::vector<Statement>& body) {
  for (const Statement& s : body) One(s);
}

void Coder::Emit(Do what, double ns, int index) {
  Here().code.push_back({what, ns, index});
}

void Coder::Work(double ns) {
  if (ns > 0) Emit(Do::kWork, ns * jitter_.Around(machine_.host_jitter));
}

int Coder::Open(Row row) {
  row.step = step_;
  row.autograd = on_autograd_;
  const int index = static_cast<int>(code_.rows.size());
  code_.rows.push_back(std::move(row));
  Emit(Do::kOpen, 0, index);
  return index;
}

int Coder::OpenCall(const std::string& name) {
  return Open(
      {.is = RowIs::kCall, .name = name, .correlation = ++correlation_});
}

int Coder::Put(DeviceTask task) {
  task.step = step_;
  task.correlation = correlation_;
  const int index = static_cast<int>(code_.tasks.size());
  code_.tasks.push_back(std::move(task));
  Emit(Do::kPut, 0, index);
  return index;
}

int64_t Coder::StreamOf(const Statement& s, int64_t other) {
  return static_cast<int64_t>(s.Option("stream", other));
}

void Coder::Around(double ns, const std::vector<Statement>& body) {
  const double part = ns / static_cast<double>(body.size() + 1);
  Work(part);
  for (const Statement& s : body) {
    One(s);
    Work(part);
  }
}

int Coder::OpenOp(const std::string& name, const Statement& s) {
  Row row{.name = name};
  row.inputs = s.Text("in", "");
  // In a backward pass, ops record nodes only if they compute with gradients
  // again, as in a checkpoint.
  const bool forward = !on_autograd_ && !in_backward_;
  if ((forward || s.Says("grad")) && no_grad_ == 0) {
    row.sequence = next_sequence_;
  }
  const int index = Open(std::move(row));
  if (Recorded()) Work(machine_.record_cost_ns);
  return index;
}

void Coder::Op(const Statement& s) {
  const int row = OpenOp(s.Word(0), s);
  if (s.Says("parallel")) {
    Emit(Do::kPool, s.Number(1) * jitter_.Around(machine_.host_jitter));
    Body(s.body);
  } else {
    Around(s.Number(1), s.body);
  }
  if (s.Says("grad") && no_grad_ == 0) open_nodes_.push_back(next_sequence_++);
  Close(row);
}

void Coder::Node(const Statement& s, const std::string& name,
                 int64_t sequence) {
  const int outer =
      Open({.name = "autograd::engine::evaluate_function: " + name,
            .op_kind = OpKind::kBackward,
            .sequence = sequence});
  Work(s.Number(s.verb == "node" ? 1 : 0) / 2);
  const int inner = Open({.name = name,
                          .op_kind = OpKind::kBackward,
                          .sequence = sequence,
                          .inputs = s.Text("in", "")});
  Around(s.Number(s.verb == "node" ? 1 : 0) / 2, s.body);
  Close(inner);
  const std::string sum = s.Text("sum", "");
  if (!sum.empty()) {  // the engine adds another node's gradient
    const int row = Open({.name = "aten::add_", .inputs = sum + "," + sum});
    Work(20'000);
    Close(row);
  }
  Close(outer);
}

void Coder::Backward(const Statement& s) {
  Work(15'000);
  in_backward_ = true;
  if (machine_.gpu.empty()) {
    Body(s.body);  // the engine runs a CPU graph in the calling thread
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
  open_nodes_.insert(open_nodes_.end(), retained_.rbegin(), retained_.rend());
  retained_.clear();
  Work(5'000);
}

void Coder::Range(const Statement& s) {
  const bool optimizer = s.Word(0) == "optimizer";
  const int row = Open({.is = RowIs::kRange,
                        .name = s.Word(1),
                        .range_kind = RangeKindOf(s.Word(0)),
                        .detail = s.Text("detail", "")});
  no_grad_ += optimizer;
  Work(1'000);
  Body(s.body);
  no_grad_ -= optimizer;
  Close(row);
}

void Coder::Load() {
  const char* name =
      machine_.workers > 0
          ? "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
          : "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
  const int row = Open({.is = RowIs::kRange,
                        .name = name,
                        .range_kind = RangeKind::kLoader,
                        .detail = machine_.live ? machine_.loader_name : ""});
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

void Coder::Pause(RowIs is, const std::string& name, double ns) {
  const int row = Open({.is = is, .name = name});
  Work(ns);
  Close(row);
}

void Coder::One(const Statement& s) {
  static const std::map<std::string, void (Coder::*)(const Statement&)> kVerbs =
      {{"op", &Coder::Op},
       {"backward", &Coder::Backward},
       {"kernel", &Coder::Kernel},
       {"graph", &Coder::Graph},
       {"copy", &Coder::Copy},
       {"item", &Coder::Item},
       {"collective", &Coder::Collective},
       {"send", &Coder::Message},
       {"recv", &Coder::Message},
       {"sync", &Coder::Sync},
       {"range", &Coder::Range}};
  if (!status_.ok()) return;
  const auto known = kVerbs.find(s.verb);
  if (known != kVerbs.end()) return (this->*known->second)(s);
  if (Flow(s) || Small(s)) return;
  Fail(s, "\"" + s.verb + "\" is no statement");
}

bool Coder::Flow(const Statement& s) {
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

bool Coder::Small(const Statement& s) {
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
    if (s.Says("retain")) retained_.push_back(sequence);
    Node(s, s.Word(0), sequence);
  } else if (s.verb == "accumulate") {
    Node(s, "torch::autograd::AccumulateGrad", -1);
  } else if (s.verb == "memset") {
    Memset(s);
  } else if (s.verb == "record") {
    Mark(s.Word(0), s, StreamOf(s));
  } else if (s.verb == "wait") {
    Wait(s.Word(0), s, StreamOf(s));
  } else if (s.verb == "join") {
    Wait("collectives", s, 7);
  } else if (s.verb == "delay") {
    Delay(s);
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
    Pause(RowIs::kRange, "Python GC", s.Number(0));
  } else if (s.verb == "overhead") {
    Pause(RowIs::kOverhead, s.Word(0), s.Number(1));
  } else if (s.verb == "memory") {
    const int row = Open({.is = RowIs::kMemory, .bytes = s.Number(0)});
    Close(row);
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<RankCode> CodeOf(const std::vector<Statement>& program,
                                const Machine& machine, int rank,
                                Jitter& jitter) {
  return Coder(program, machine, rank, jitter).All();
}

}  // namespace stepscope::simulator
