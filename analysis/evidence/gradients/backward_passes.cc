#include "evidence/gradients/backward_passes.h"

#include <set>

#include "ops/backward_nodes.h"
#include "steps/steady_steps.h"

namespace stepscope {

// A new pass begins where the sequence number rises: of the nodes that are
// ready, the engine runs the one with the highest number, so numbers fall
// within a pass. AccumulateGrad runs right after the node that computes the
// gradient.
BackwardPasses FindBackwardPasses(const AnalysisContext& m) {
  BackwardPasses found;
  const Trace& trace = m.trace;
  RowId thread = kNone;
  int64_t last = -1;
  std::set<RowId> adding;
  // Additions lie inside their AccumulateGrad node, so they come after it in
  // the table. Collect them first.
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    if (AddsToGradient(trace, row)) adding.insert(trace.ops()[row].parent);
  }
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    const Op& op = trace.ops()[row];
    if (m.tree.traits(row).accumulate_grad) {
      // AccumulateGrad inside another node, which may be of its own kind and
      // run a hook, shows a backward pass inside a backward node.
      found.nested |= trace.ops()[EngineRangeOf(trace, row)].parent != kNone;
      found.threads |= thread != kNone && op.thread != thread;
      thread = op.thread;
      const TensorShape gradient = TensorArgument(trace, row, 0);
      found.sizes_known &= gradient.known();
      if (found.passes.empty()) continue;
      found.passes.back().nodes.back().kept.push_back(
          {.row = row, .gradient = gradient, .adds = adding.contains(row)});
      continue;
    }
    if (op.kind != OpKind::kBackward || op.parent != kNone || op.sequence < 0) {
      continue;
    }
    const size_t step = WindowAt(m.steps, &StepWindow::host, op.begin_ns);
    if (found.passes.empty() || found.passes.back().step != step ||
        op.sequence > last) {
      found.passes.push_back({.step = step});
    }
    last = op.sequence;
    found.passes.back().nodes.push_back({.row = row});
  }
  return found;
}

KeptBySize GroupedBySize(BackwardPass& pass) {
  KeptBySize by_size;
  for (PassNode& node : pass.nodes) {
    for (StoredGradient& one : node.kept)
      by_size[one.gradient.dims].push_back(&one);
  }
  return by_size;
}

}  // namespace stepscope
