#include "steps/forward_steps.h"

#include "steps/steady_steps.h"

namespace stepscope {

std::vector<ForwardStep> FindForwardSteps(const Trace& trace,
                                          const OpTree& tree,
                                          const Steps& steps,
                                          std::span<const Span> optimizer) {
  std::vector<ForwardStep> found;
  if (steps.thread == kNone) return found;
  for (RowId row : tree.of_thread(steps.thread)) {
    const Op& op = trace.ops()[row];
    if (op.parent != kNone || tree.in_backward(row) ||
        Covers(optimizer, op.begin_ns)) {
      continue;
    }
    const size_t step = SteadyStepAt(steps, op.begin_ns);
    if (step == steps.windows.size()) continue;
    if (found.empty() || found.back().step != step) found.push_back({step});
    found.back().ops.push_back(row);
  }
  return found;
}

}  // namespace stepscope
