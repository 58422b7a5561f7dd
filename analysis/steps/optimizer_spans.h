// Finds where the optimizer updates the parameters, and which autograd nodes
// accumulate their gradients.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

struct OptimizerSpans {
  std::vector<Span> spans;  // host time, disjoint
  bool inferred = false;    // from ops, because no range marks the optimizer
};

// torch.optim opens a range per step in Python, and programs may mark a phase
// "optimizer". LibTorch's C++ optimizers open no range; there the span is the
// longest run of update ops between the last accumulated gradient of a step and
// its end or the next matrix product. Empty if nothing is trained.
OptimizerSpans FindOptimizerSpans(const Trace& trace, const OpTree& tree,
                                  const Steps& steps);

// Returns, for each window of `steps`, the AccumulateGrad nodes of that
// backward pass of the step that has most of them: one node per parameter. A
// pass ends where the next forward pass computes.
std::vector<std::vector<RowId>> AccumulationsOfAPass(const Trace& trace,
                                                     const OpTree& tree,
                                                     const Steps& steps);

}  // namespace stepscope
