// Gaps: times in which a device is idle between two activities, and what the
// next activity waited for.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/activity.h"
#include "ops/intervals.h"

namespace stepscope {

// Returns the row that `ref` names. REQUIRES: it is a row of the Trace.
const DeviceWork& ActivityOf(const Trace& trace, const ActivityRef& ref);

struct Gap {
  Span idle;
  ActivityRef before;  // the activity that ended last
  ActivityRef next;    // the activity that ends the gap
  // True: the call that launched `next` began inside the gap, so the device
  // waited for the host. False: `next` was queued already and waited for
  // something else, or its launch is not known.
  bool host_late = false;
  bool launch_known = false;  // the launch of `next` was recorded
};

// Returns the gaps of `device` in time order; the time before its first and
// after its last activity is no gap. Without `collectives`, kernels of
// collectives do not count as activities: a collective that waits for other
// ranks does not use the device.
std::vector<Gap> FindGaps(const Trace& trace, int32_t device, bool collectives);

// Returns the idle time of each gap, in the order of `gaps`.
std::vector<Span> IdleSpans(const std::vector<Gap>& gaps);

}  // namespace stepscope
