#include "context/graph_walks.h"

#include <utility>

#include "ops/backward_nodes.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// With create_graph=True, at least this share of the ops in nodes record nodes
// themselves. It is below 1, because functions that cannot be differentiated
// twice record nothing. Without create_graph, recomputation in a checkpoint
// also records nodes, but that is only a third of all ops.
constexpr double kRecordingShare = 0.9;

class WalkFinder {
 public:
  WalkFinder(const Trace& trace, const OpTree& tree, const Steps& steps)
      : trace_(trace),
        tree_(tree),
        steps_(steps),
        open_(trace.threads().size(), -1) {}

  std::vector<GraphWalk> Find() {
    for (RowId row = 0; row < trace_.ops().size(); ++row) Add(row);
    for (size_t i = 0; i < passes_.size(); ++i) {
      const Recording& one = recordings_[i];
      passes_[i].records =
          one.ops > 0 && one.recording >= kRecordingShare * one.ops;
    }
    std::erase_if(passes_, [&](const GraphWalk& pass) {
      return pass.step == steps_.windows.size();
    });
    return std::move(passes_);
  }

 private:
  // ops: directly inside nodes. recording: those of them with sequence numbers.
  struct Recording {
    double ops = 0, recording = 0;
  };

  // A new pass begins where the sequence number does not fall: of the nodes
  // that are ready, the engine runs the one with the highest number.
  // AccumulateGrad runs right after the node that computes the gradient.
  void Add(RowId row) {
    const Op& op = trace_.ops()[row];
    if (op.thread == kNone) return;
    if (tree_.traits(row).accumulate_grad) return AddKept(row);
    if (op.kind == OpKind::kOperator) return AddOp(row);
    if (op.parent != kNone || op.sequence < 0 || !IsOurs(op)) return;
    const size_t step = SteadyStepAt(steps_, op.begin_ns);
    int64_t& open = open_[op.thread];
    if (open < 0 || passes_[open].step != step ||
        // An equal number is the same node, and only another pass can run it
        // again.
        op.sequence >= passes_[open].nodes.back().sequence) {
      open = static_cast<int64_t>(passes_.size());
      passes_.push_back({.step = step, .span = {op.begin_ns, op.end_ns}});
      recordings_.emplace_back();
    }
    passes_[open].span.end_ns = op.end_ns;
    passes_[open].nodes.push_back({.row = row, .sequence = op.sequence});
  }

  // Autograd numbers its nodes per thread, so nodes of graphs that other
  // threads made cannot be compared with these.
  bool IsOurs(const Op& op) const {
    if (steps_.thread == kNone) return true;
    const uint64_t ours = trace_.threads()[steps_.thread].torch_thread;
    return op.forward_thread == 0 || ours == 0 || op.forward_thread == ours;
  }

  void AddOp(RowId row) {
    const Op& op = trace_.ops()[row];
    if (op.parent == kNone || open_[op.thread] < 0) return;
    WalkedNode& node = passes_[open_[op.thread]].nodes.back();
    if (!node.kept.empty() && AddsToGradient(trace_, row)) {
      node.kept.back().adds = true;
    }
    const Op& parent = trace_.ops()[op.parent];
    if (parent.kind != OpKind::kBackward || parent.sequence < 0) return;
    // node.row is the engine's range. Directly inside it the engine adds
    // gradients, while the formula of the node runs one level deeper.
    if (op.parent == node.row && tree_.traits(row).adding) {
      node.added.push_back(row);
      return;
    }
    Recording& pass = recordings_[open_[op.thread]];
    ++pass.ops;
    pass.recording += op.sequence >= 0;
  }

  void AddKept(RowId row) {
    const Op& op = trace_.ops()[row];
    if (open_[op.thread] < 0) return;
    const TensorShape gradient = TensorArgument(trace_, row, 0);
    passes_[open_[op.thread]].nodes.back().kept.push_back(
        {.row = OutermostOf(trace_, row),
         .gradient = gradient.dims,
         .sized = gradient.known()});
  }

  const Trace& trace_;
  const OpTree& tree_;
  const Steps& steps_;
  std::vector<int64_t> open_;  // by thread: index into passes_; -1: none
  std::vector<GraphWalk> passes_;
  std::vector<Recording> recordings_;  // by pass
};

}  // namespace

std::vector<GraphWalk> FindGraphWalks(const Trace& trace, const OpTree& tree,
                                      const Steps& steps) {
  if (steps.thread == kNone) return {};
  return WalkFinder(trace, tree, steps).Find();
}

}  // namespace stepscope
