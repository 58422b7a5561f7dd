// The forward pass of each step, op by op.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

struct ForwardStep {
  size_t step = 0;              // index into Steps::windows
  std::vector<RowId> ops = {};  // outermost ops, including views, in time order
};

// Returns the ops of the training thread in each steady step, without backward
// passes and the optimizer's spans. Steps without any op are left out.
std::vector<ForwardStep> FindForwardSteps(const Trace& trace,
                                          const OpTree& tree,
                                          const Steps& steps,
                                          std::span<const Span> optimizer);

// Calls `find(ops, i)`, which returns an optional, for each op of each step.
// Returns what it finds, in order, with the member `step` set.
template <typename Find>
auto FindAtOps(std::span<const ForwardStep> steps, Find find) {
  using Found = std::invoke_result_t<Find&, std::span<const RowId>, size_t>;
  std::vector<typename Found::value_type> found;
  for (const ForwardStep& step : steps) {
    for (size_t i = 0; i < step.ops.size(); ++i) {
      Found one = find(step.ops, i);
      if (!one) continue;
      one->step = step.step;
      found.push_back(*std::move(one));
    }
  }
  return found;
}

}  // namespace stepscope
