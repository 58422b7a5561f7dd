// Gaps: the stretches in which a device has no work between two of its works,
// and what the next work waited for.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/activity.h"
#include "ops/intervals.h"

namespace stepscope {

// A kernel, copy or memset, whichever table it stands in.
const DeviceWork& ActivityOf(const Trace& trace, const ActivityRef& ref);

// A gap this short in front of queued work is the device's own latency
// (rules.md 2.3).
inline constexpr int64_t kQueuedLatencyNs = 10'000;

struct Gap {
  Span idle;
  ActivityRef before;  // the work that ended last
  ActivityRef next;    // the work that ends the gap
  // The launch of `next` began only after the device had run dry: the host was
  // late. Otherwise the work was queued, and waited for something else.
  bool host_late = false;
  bool launch_known = false;
};

// In time order. Before the first and after the last work there are no gaps.
// Without `collectives`, their kernels do not count as work: a collective that
// waits for other ranks keeps a device no busier than an empty queue.
std::vector<Gap> FindGaps(const Trace& trace, int32_t device, bool collectives);

// All the time in which `device` runs kernels, disjoint; without collectives
// if `only_compute`.
std::vector<Span> KernelSpans(const Trace& trace, int32_t device,
                              bool only_compute);

}  // namespace stepscope
