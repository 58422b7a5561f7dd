// The idle ledger (rules.md 2.3): every nanosecond in which the GPU has no
// work, to the reason why not. Busy time is compute, exposed communication or
// exposed copy.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/op_traits.h"
#include "steps/steps.h"
#include "timeline/causes.h"

namespace stepscope {

struct DeviceLedger {
  std::vector<CauseTimes> splits;  // one per step window, over its tiled span
  int64_t works = 0;               // kernels, copies and memsets of the device
  int64_t unmatched = 0;           // of which no launch was recorded
  int64_t launches_per_step = 0;   // mean over the steady steps
  int32_t device = 0;              // the one with most work
};

// REQUIRES: trace.has_device_work(), steps are not empty.
DeviceLedger MakeDeviceLedger(const Trace& trace, const OpTree& tree,
                              const Steps& steps);

}  // namespace stepscope
