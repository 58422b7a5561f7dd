// The ranges of torch.optim, and when they update parameters.
#pragma once

#include <stepscope/trace.h>

#include <algorithm>
#include <functional>

#include "ops/intervals.h"

namespace stepscope {

// True for a range of step(); false for one of zero_grad().
inline bool IsOptimizerStep(const Trace& trace, const Range& range) {
  return range.kind == RangeKind::kOptimizer &&
         trace.name(range.name).starts_with("Optimizer.step");
}

// Returns the part of a range of torch.optim in which parameters are updated.
// step(closure) also runs the forward and the backward pass, as Lightning and
// LBFGS do; the update follows the last backward node.
inline Span UpdateSpanOf(const Trace& trace, const Range& range) {
  Span span = {range.begin_ns, range.end_ns};
  auto op =
      std::ranges::lower_bound(trace.ops(), range.begin_ns, {}, &Op::begin_ns);
  for (; op != trace.ops().end() && op->begin_ns < range.end_ns; ++op) {
    if (op->kind != OpKind::kBackward || op->end_ns > range.end_ns) continue;
    span.begin_ns = std::max(span.begin_ns, op->end_ns);
  }
  return span;
}

}  // namespace stepscope
