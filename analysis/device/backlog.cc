#include "device/backlog.h"

#include <algorithm>
#include <limits>

namespace stepscope {
namespace {

template <typename Visit>
void ForEachActivity(const Trace& trace, const Visit& visit) {
  for (const Kernel& work : trace.kernels()) visit(work);
  for (const Copy& work : trace.copies()) visit(work);
  for (const Memset& work : trace.memsets()) visit(work);
}

}  // namespace

Backlog::Backlog(const Trace& trace, int64_t launches_by_ns)
    : first_correlation_(std::numeric_limits<int64_t>::max()) {
  const auto note = [](auto& firsts, const auto& key, int64_t begin_ns) {
    const auto [it, added] = firsts.emplace(key, begin_ns);
    if (!added) it->second = std::min(it->second, begin_ns);
  };
  int64_t first_launch_ns = std::numeric_limits<int64_t>::max();
  ForEachActivity(trace, [&](const DeviceWork& work) {
    if (work.call == kNone) return;
    first_launch_ns =
        std::min(first_launch_ns, trace.runtime_calls()[work.call].begin_ns);
    note(by_stream_, std::pair{work.device, work.stream}, work.begin_ns);
    const int64_t correlation = trace.runtime_calls()[work.call].correlation;
    if (correlation >= 0) {
      first_correlation_ = std::min(first_correlation_, correlation);
    }
  });
  // If no launch was recorded by then, launches were lost, and no activity can
  // be assumed to be from before the recording.
  if (first_launch_ns > launches_by_ns) by_stream_.clear();
  for (const auto& [stream, begin_ns] : by_stream_) {
    note(by_device_, stream.first, begin_ns);
  }
}

bool Backlog::Has(const DeviceWork& activity) const {
  if (activity.call != kNone) return false;
  // The driver numbers calls in their order. So the launch of this activity was
  // made during the recording, but was lost.
  if (activity.correlation >= 0 && activity.correlation >= first_correlation_) {
    return false;
  }
  const auto stream = by_stream_.find({activity.device, activity.stream});
  if (stream != by_stream_.end()) return activity.begin_ns < stream->second;
  // The stream has no recorded launch, so compares with the first activity of
  // the device.
  const auto device = by_device_.find(activity.device);
  return device != by_device_.end() && activity.begin_ns < device->second;
}

int64_t ActivitiesLaunchedBefore(const Trace& trace, int32_t device,
                                 int64_t launches_by_ns) {
  const Backlog backlog(trace, launches_by_ns);
  int64_t count = 0;
  ForEachActivity(trace, [&](const DeviceWork& work) {
    count += work.device == device && backlog.Has(work);
  });
  return count;
}

}  // namespace stepscope
