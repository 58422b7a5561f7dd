// Where the optimizer steps.
#pragma once

#include <stepscope/trace.h>

#include <string_view>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

struct OptimizerSpans {
  std::vector<Span> spans;  // on the host, disjoint, in time order
  bool inferred = false;    // no range says so: told by the ops
};
// torch.optim opens a range per step, and programs may mark a phase
// "optimizer". LibTorch's optimizers open none: of what follows the last
// accumulated gradient of a step up to the next matrix product, the most
// updates in a row.
OptimizerSpans FindOptimizerSpans(const Trace& trace, const OpTree& tree,
                                  const Steps& steps);

// By window of `steps`: the nodes that accumulate gradients in the backward
// pass with most of them, one for each parameter. A pass ends where the next
// forward pass computes.
std::vector<std::vector<RowId>> AccumulationsOfAPass(const Trace& trace,
                                                     const OpTree& tree,
                                                     const Steps& steps);

// An op that optimizers update tensors with, in place or as a part of that.
bool IsUpdate(std::string_view op);

}  // namespace stepscope
