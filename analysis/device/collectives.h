// FindCollectives() finds every collective operation that this rank took part
// in: the kernel that moved the data (on a run without a GPU, the range), the
// host call that issued it, its size, and the time while nothing computes.
#pragma once

#include <stepscope/trace.h>

#include <functional>
#include <vector>

#include "device/collective.h"
#include "ops/op_traits.h"
#include "steps/steps.h"
#include "timeline/timeline.h"

namespace stepscope {

// Returns them in order of moved.begin_ns. On a run with a GPU, collectives
// without a kernel (a group of one rank, a barrier) are left out. On a CPU-only
// run `exposed_ns` is the time that the training thread waits for it. `host` is
// the timeline of the training thread in the steps.
std::vector<Collective> FindCollectives(const Trace& trace, const OpTree& tree,
                                        const Steps& steps,
                                        const std::vector<Segment>& host);

// Means per steady step over the collectives that `wanted` accepts.
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
