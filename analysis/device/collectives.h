// Collectives: every collective operation that one rank took part in, with the
// kernel that moved it (runs with a GPU) or the range that did (runs without),
// the host call that issued it, its size, and how much of it no computing
// covers.
#pragma once

#include <stepscope/trace.h>

#include <functional>
#include <vector>

#include "device/collective.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// In order of `moved`. Collectives of a GPU run without a kernel (a world of
// one rank, a barrier) are left out.
std::vector<Collective> FindCollectives(const Trace& trace, const OpTree& tree,
                                        const Steps& steps);

// Means per steady step over the collectives that `wanted` picks.
struct CollectiveTotals {
  double count = 0;
  double bytes = 0;     // of those whose size is known
  double moved_ns = 0;  // while at least one was under way
  double exposed_ns = 0;
  double issue_ns = 0;  // host time of the calls
  bool all_sizes_known = true;
};
CollectiveTotals TotalsOf(const std::vector<Collective>& collectives,
                          const Steps& steps,
                          const std::function<bool(const Collective&)>& wanted);

}  // namespace stepscope
