// Backlog: what a GPU still had to do when the recording began. A GPU runs
// behind its host, so the first activities of a recording often belong to
// launches from before it. Their launches are not missing: they are known to
// precede every recorded one.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <utility>

namespace stepscope {

class Backlog {
 public:
  // If no recorded launch begins by `launches_by_ns`, for example by the end of
  // the first step, launches were lost, and nothing counts as backlog.
  explicit Backlog(const Trace& trace, int64_t launches_by_ns = INT64_MAX);

  // True if `activity` has no recorded launch and starts before the first
  // activity of its stream with a recorded launch. If no activity of the stream
  // has one, compares with the first such activity of the device. If `activity`
  // has a correlation number, it must also be lower than that of every recorded
  // launch, because the driver numbers its calls in their order.
  bool Has(const DeviceWork& activity) const;

 private:
  // When the first activity with a recorded launch starts.
  std::map<std::pair<int32_t, int64_t>, int64_t> by_stream_;
  std::map<int32_t, int64_t> by_device_;
  int64_t first_correlation_;
};

// Returns the number of activities of `device` that belong to the backlog.
int64_t ActivitiesLaunchedBefore(const Trace& trace, int32_t device,
                                 int64_t launches_by_ns = INT64_MAX);

}  // namespace stepscope
