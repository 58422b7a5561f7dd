#include "evidence/stalls/state_reads.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "steps/steady_steps.h"
#include "steps/step_facts.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// Fewer reads may be a few tensors that are logged.
constexpr int64_t kLeastReads = 4;

// Shorter pauses may belong to the program's code between ops, or to the
// recorder at step marks (up to 0.5 ms, as in own_code.cc). Writing 1 MiB also
// takes about that long.
constexpr int64_t kLeastPauseNs = 500'000;

double OwnCodeNs(const AnalysisContext& m, Span span) {
  double ns = 0;
  for (const Segment& segment : Slice(m.host, span)) {
    if (segment.cause == Cause::kHostCode && segment.length() > kLeastPauseNs) {
      ns += static_cast<double>(segment.length());
    }
  }
  return ns;
}

}  // namespace

std::vector<StateRead> FindStateReads(const AnalysisContext& m) {
  std::vector<StateRead> found;
  if (m.steps.thread == kNone) return found;
  const int64_t least =
      // A program that saves a model reads all of its parameters.
      std::max(kLeastReads, static_cast<int64_t>(m.usual.parameters));
  std::optional<StateRead> open;
  const auto close = [&](int64_t end_ns) {
    if (open && open->reads >= least) {
      open->span.end_ns = end_ns;
      open->own_ns = OwnCodeNs(m, open->span);
      found.push_back(*open);
    }
    open.reset();
  };
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (op.parent != kNone) continue;
    const std::string_view name = m.trace.name(op.name);
    // Module.state_dict() calls detach() on each parameter and buffer.
    const bool reads = name == "aten::detach" && !m.tree.in_backward(row);
    if (!open && !reads) continue;
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (open && step != open->step) {
      close(m.steps.windows[open->step].host.end_ns);
    }
    if (!reads || step == m.steps.windows.size()) {
      // If the weights are then copied, they go into another network.
      if (ReadsTensor(name)) open.reset();
      close(op.begin_ns);
      continue;
    }
    if (!open) {
      open = StateRead{.step = step, .first = row, .span = {op.begin_ns, 0}};
    }
    ++open->reads;
  }
  if (open) close(m.steps.windows[open->step].host.end_ns);
  if (!RecursInMostSteps(m.steps, found)) found.clear();
  return found;
}

}  // namespace stepscope
