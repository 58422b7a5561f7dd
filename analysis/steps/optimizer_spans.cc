#include "steps/optimizer_spans.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/update_span.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// The spans of ranges that mark the optimizer's steps.
std::vector<Span> NamedSpans(const Trace& trace) {
  std::vector<Span> spans;
  for (const Range& range : trace.ranges()) {
    if (IsOptimizerStep(trace, range)) {
      spans.push_back(UpdateSpanOf(trace, range));
    } else if (range.kind == RangeKind::kPhase &&
               trace.name(range.name) == "optimizer") {
      spans.push_back({range.begin_ns, range.end_ns});
    }
  }
  return Merge(std::move(spans));
}

// Consecutive update ops.
struct Run {
  Span span;
  int64_t updates = 0;
};

// Returns the longest run of update ops among `ops`, up to a matrix product.
// The longest, because clipping gradients and computing metrics use a few of
// the same ops before or after the optimizer. A matrix product after the last
// gradient means that the next forward pass or a metric has begun.
Run LongestRun(const Trace& trace, const OpTree& tree,
               std::span<const RowId> ops) {
  Run best, now;
  for (RowId row : ops) {
    const Op& op = trace.ops()[row];
    const OpTraits& traits = tree.traits(row);
    if (traits.matmul) break;
    if (op.end_ns <= now.span.end_ns) continue;  // a child of the last update
    if (traits.update) {
      if (now.updates == 0) now.span.begin_ns = op.begin_ns;
      now.span.end_ns = op.end_ns;
      ++now.updates;
    } else if (!traits.bookkeeping) {
      now = {};
    }
    if (now.updates > best.updates) best = now;
  }
  return best;
}

// One span per step: the longest run of updates after its last gradient.
std::vector<Span> InferredSpans(const Trace& trace, const OpTree& tree,
                                const Steps& steps) {
  if (steps.thread == kNone) return {};
  // If a step has several backward passes, the update follows only the last
  // one.
  std::vector<int64_t> last(steps.windows.size());
  for (RowId row = 0; row < trace.ops().size(); ++row) {
    if (!tree.traits(row).accumulate_grad) continue;
    const Op& op = trace.ops()[row];
    const size_t step = WindowAt(steps, &StepWindow::host, op.begin_ns);
    if (step < last.size()) last[step] = std::max(last[step], op.end_ns);
  }
  std::vector<Span> spans;
  for (size_t i = 0; i < last.size(); ++i) {
    if (last[i] == 0) continue;
    const Run run = LongestRun(
        trace, tree,
        tree.of_thread(steps.thread, {last[i], steps.windows[i].host.end_ns}));
    if (run.updates > 0) spans.push_back(run.span);
  }
  return Merge(std::move(spans));
}

}  // namespace

// A step may have several backward passes (accumulated gradients, a GAN); the
// one with most nodes has most of the parameters.
std::vector<std::vector<RowId>> AccumulationsOfAPass(const Trace& trace,
                                                     const OpTree& tree,
                                                     const Steps& steps) {
  std::vector<std::vector<RowId>> most(steps.windows.size());
  std::vector<RowId> pass;
  size_t current = steps.windows.size();
  const auto close = [&] {
    if (current < most.size() && pass.size() > most[current].size()) {
      most[current] = pass;
    }
    pass.clear();
  };
  const std::span<const Op> ops = trace.ops();
  for (RowId row = 0; row < ops.size(); ++row) {
    const Op& op = ops[row];
    const OpTraits& traits = tree.traits(row);
    if (traits.matmul && !tree.in_backward(row) && op.thread == steps.thread) {
      close();
    }
    if (!traits.accumulate_grad) continue;
    const size_t step = WindowAt(steps, &StepWindow::host, op.begin_ns);
    if (step != current) close();
    current = step;
    pass.push_back(row);
  }
  close();
  return most;
}

OptimizerSpans FindOptimizerSpans(const Trace& trace, const OpTree& tree,
                                  const Steps& steps) {
  OptimizerSpans found{.spans = NamedSpans(trace)};
  if (found.spans.empty()) {
    found.spans = InferredSpans(trace, tree, steps);
    found.inferred = !found.spans.empty();
  }
  return found;
}

}  // namespace stepscope
