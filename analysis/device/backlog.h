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

  // True if `activity` has no recorded launch, runs before the first activity
  // of its stream that has one (on a stream without any: before the first one
  // of its device), and has a lower correlation than every recorded launch, if
  // it has one: the driver numbers its calls in their order.
  bool Has(const DeviceWork& activity) const;

 private:
  std::map<std::pair<int32_t, int64_t>, int64_t> by_stream_;  // first launched
  std::map<int32_t, int64_t> by_device_;                      // the same
  int64_t first_correlation_;
};

// Returns the number of activities of `device` that belong to the backlog.
int64_t ActivitiesLaunchedBefore(const Trace& trace, int32_t device,
                                 int64_t launches_by_ns = INT64_MAX);

}  // namespace stepscope
