// DeviceLedger: the time split of a run with a GPU. Busy time is compute,
// exposed communication or exposed copy. Every idle nanosecond has one reason.
// Either the next activity was queued and had to wait, or the host launched it
// late; then the time goes to what the host did until the launch.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <set>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"
#include "timeline/causes.h"
#include "timeline/recorder_cost.h"
#include "timeline/timeline.h"

namespace stepscope {

struct DeviceLedger {
  std::vector<CauseTimes> splits;  // by step window; each adds up to its tiled
                                   // span exactly
  int64_t activities = 0;          // kernels, copies and memsets of the device
  int64_t unmatched = 0;           // those without a recorded launch
  int64_t launches_per_step = 0;   // mean over the steady steps
  int32_t device = 0;              // the device with the most activity time
  std::vector<Span> kernels;       // disjoint: while the device runs kernels
  std::vector<Span> compute;  // the same, without the kernels of collectives
  std::set<int64_t> kernel_streams;  // of the device
};

// Splits the time of the busiest device. Where the host is late, the cost of
// recording its ops (by `cost`) counts for the profiler. `host` is the timeline
// of the training thread in the steps.
// REQUIRES: trace.has_device_work(), steps are not empty.
DeviceLedger MakeDeviceLedger(const Trace& trace, const OpTree& tree,
                              const Steps& steps,
                              const std::vector<Segment>& host,
                              const RecorderCost& cost = {});

}  // namespace stepscope
