// Coder: turns a program's statements into one rank's instructions, step by
// step. program_coder.cc has the host's part, program_coder_device.cc the
// device's.
#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/simulator/program_code.h"

namespace stepscope::simulator {

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

  absl::StatusOr<RankCode> All();

 private:
  void Fail(const Statement& s, const std::string& what);

  // Runs the statements.
  void Body(const std::vector<Statement>& body);
  void One(const Statement& s);
  bool Flow(const Statement& s);   // repeat, every, rank, no_grad, do
  bool Small(const Statement& s);  // statements without a function of their own

  // Instructions and rows of the current thread.
  ThreadCode& Here() { return on_autograd_ ? code_.autograd : code_.training; }
  void Emit(Do what, double ns = 0, int index = 0);
  void Work(double ns);
  int Open(Row row);
  void Close(int row) { Emit(Do::kClose, 0, row); }
  int OpenCall(const std::string& name);
  int OpenOp(const std::string& name, const Statement& s);
  bool Recorded() const { return step_ >= machine_.warmup; }
  // Adds an op's own time in equal parts around its contents.
  void Around(double ns, const std::vector<Statement>& body);

  // Statements of the host.
  void Load();
  void Op(const Statement& s);
  void Node(const Statement& s, const std::string& name, int64_t sequence);
  void Backward(const Statement& s);
  void Range(const Statement& s);
  void Pause(RowIs is, const std::string& name, double ns);

  // Statements of the device.
  int Put(DeviceTask task);
  static int64_t StreamOf(const Statement& s, int64_t other = 7);
  DeviceTask KernelTask(const Statement& s, int64_t graph);
  void Kernel(const Statement& s);
  void Graph(const Statement& s);
  void Memset(const Statement& s);
  void Copy(const Statement& s);
  void Item(const Statement& s);
  void Collective(const Statement& s);
  void Message(const Statement& s);
  int GroupOf(const Statement& s);
  struct Exchange {
    std::string name, kernel;
    double amount = 0;  // ns after all ranks have arrived
    int64_t stream = 20;
    const char* mark = "collectives";  // event for `join`; "": none
    std::array<int, 4> meets_as = {};
  };
  void Add(const Statement& s, const Exchange& exchange);
  void Mark(const std::string& event, const Statement& s, int64_t stream);
  int DeviceOf(const Statement& s);
  void Wait(const std::string& event, const Statement& s, int64_t stream);
  void Delay(const Statement& s);
  void Sync(const Statement& s);
  void SyncCall(const std::string& name, Do what, int index);

  const Machine& machine_;
  int rank_;
  Jitter& jitter_;
  RankCode code_;
  absl::Status status_;
  std::map<std::string, const std::vector<Statement>*> defined_;
  const std::vector<Statement>* step_body_ = nullptr;
  std::map<std::string, int> marks_;  // the latest mark of each event
  std::set<std::string> seen_kernels_;
  std::vector<int64_t> open_nodes_;
  std::vector<int64_t> retained_;  // visited in this backward pass
  int64_t next_sequence_ = 100, correlation_ = 1000, graphs_ = 0;
  // Keys: group, sender and receiver.
  std::map<std::array<int, 3>, int> ordinals_;
  int step_ = 0, turns_ = 0, no_grad_ = 0, depth_ = 0;
  bool on_autograd_ = false, in_backward_ = false;
};

}  // namespace stepscope::simulator
