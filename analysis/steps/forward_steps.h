// The forward pass of each step, op by op.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <span>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

struct ForwardStep {
  size_t step = 0;              // index into Steps::windows
  std::vector<RowId> ops = {};  // outermost, in time order, views as well
};

// Of the training thread in the steady steps, without backward passes and the
// optimizer's spans. Steps without any op are left out.
std::vector<ForwardStep> FindForwardSteps(const Trace& trace,
                                          const OpTree& tree,
                                          const Steps& steps,
                                          std::span<const Span> optimizer);

}  // namespace stepscope
