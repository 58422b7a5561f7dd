// DeviceLedger: the time split of a run with a GPU. Busy time is compute,
// exposed communication or exposed copy. Every idle nanosecond goes to the
// reason why the device had nothing to do: the host was late, and then to what
// the host did meanwhile, or the next activity was queued and waited.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "ops/op_traits.h"
#include "steps/steps.h"
#include "timeline/causes.h"
#include "timeline/recorder_cost.h"

namespace stepscope {

struct DeviceLedger {
  std::vector<CauseTimes> splits;  // by step window; each adds up to its tiled
                                   // span exactly
  int64_t activities = 0;          // kernels, copies and memsets of the device
  int64_t unmatched = 0;           // those without a recorded launch
  int64_t launches_per_step = 0;   // mean over the steady steps
  int32_t device = 0;              // the device with most activity time
};

// Splits the time of the busiest device. What recording an op costs is the
// profiler's time where the host is late.
// REQUIRES: trace.has_device_work(), steps are not empty.
DeviceLedger MakeDeviceLedger(const Trace& trace, const OpTree& tree,
                              const Steps& steps,
                              const RecorderCost& cost = {});

}  // namespace stepscope
