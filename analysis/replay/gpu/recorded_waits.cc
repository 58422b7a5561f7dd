#include "replay/gpu/recorded_waits.h"

#include <algorithm>
#include <cmath>

#include "device/gaps.h"
#include "ops/contains.h"

namespace stepscope {

RecordedWaits::RecordedWaits(const Trace& trace, const DeviceProgram& program)
    : trace_(trace),
      program_(program),
      by_stream_(program.streams),
      waits_(program.streams),
      next_(program.streams) {
  if (trace.syncs().empty()) return;
  for (uint32_t i = 0; i < program.activities.size(); ++i) {
    const DeviceNode& activity = program.activities[i];
    const DeviceWork& row = ActivityOf(trace, activity.ref);
    streams_.emplace(std::pair{row.device, row.stream}, activity.stream);
    by_stream_[activity.stream].push_back(i);
  }
  for (const Sync& sync : trace.syncs()) {
    if (sync.call != kNone) sync_of_call_[sync.call] = &sync;
    if (sync.wait_on_record_correlation >= 0) {
      events_.emplace(sync.wait_on_record_correlation, kNone);
    }
  }
  for (RowId row = 0; row < trace.runtime_calls().size(); ++row) {
    const auto event = events_.find(trace.runtime_calls()[row].correlation);
    if (event != events_.end()) event->second = row;
  }
  for (const Sync& sync : trace.syncs()) {
    if (sync.call == kNone || !Contains(trace.name(sync.name), "Stream Wait")) {
      continue;
    }
    const uint32_t stream = StreamOf(sync.device, sync.stream);
    if (stream == kNoActivity || sync.wait_on_stream < 0) continue;
    // If nothing was launched before the event, the wait has no effect. It is
    // kept nevertheless, because it shows that the recording names the waits of
    // this stream.
    waits_[stream].push_back(
        {trace.runtime_calls()[sync.call].begin_ns, MarkedBy(sync)});
  }
  for (std::vector<Wait>& waits : waits_) {
    std::ranges::stable_sort(waits, {}, &Wait::since_ns);
  }
}

int64_t RecordedWaits::Launched(uint32_t activity) const {
  const DeviceNode& node = program_.activities[activity];
  return program_.hosts[node.host].gap.end_ns + std::llround(node.offset_ns);
}

// False if `first` ended after `second` started, so that `second` cannot have
// waited for it. The records may still pair the two, if the event was recorded
// again or belongs to the capture of a graph.
bool RecordedWaits::CanPrecede(uint32_t first, uint32_t second) const {
  return first != kNoActivity && first < second &&
         program_.activities[first].stream !=
             program_.activities[second].stream &&
         program_.activities[first].span.end_ns <=
             program_.activities[second].span.begin_ns + kEventRoundingNs;
}

uint32_t RecordedWaits::StreamOf(int32_t device, int64_t stream) const {
  const auto found = streams_.find({device, stream});
  return found == streams_.end() ? kNoActivity : found->second;
}

uint32_t RecordedWaits::LastLaunched(uint32_t stream, int64_t before_ns) const {
  const std::vector<uint32_t>& queue = by_stream_[stream];
  const auto after = std::ranges::partition_point(
      queue, [&](uint32_t i) { return Launched(i) < before_ns; });
  return after == queue.begin() ? kNoActivity : *(after - 1);
}

// Returns the last activity that the event waits for: an event stands for all
// that was launched to its stream before the event was recorded.
uint32_t RecordedWaits::MarkedBy(const Sync& sync) const {
  const uint32_t stream = StreamOf(sync.device, sync.wait_on_stream);
  const auto event = events_.find(sync.wait_on_record_correlation);
  if (stream == kNoActivity || event == events_.end() ||
      event->second == kNone) {
    return kNoActivity;
  }
  return LastLaunched(stream, trace_.runtime_calls()[event->second].begin_ns);
}

uint32_t RecordedWaits::TargetOf(RowId call) const {
  const auto found = sync_of_call_.find(call);
  if (found == sync_of_call_.end()) return kNoActivity;
  const Sync& sync = *found->second;
  if (Contains(trace_.name(sync.name), "Event")) return MarkedBy(sync);
  const uint32_t stream = StreamOf(sync.device, sync.stream);
  return stream == kNoActivity
             ? kNoActivity
             : LastLaunched(stream, trace_.runtime_calls()[call].begin_ns);
}

}  // namespace stepscope
