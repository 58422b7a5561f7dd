// RecordedWaits: what waits for what, if the recording says so. CUPTI's
// synchronisation records (cuda_sync) name the stream that waits, the stream of
// the event and the call that recorded the event. They need not name every
// wait: streams that wait for the same event may share a row.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/gpu/device_program.h"

namespace stepscope {

// Error of timestamps in files that hold whole microseconds.
inline constexpr int64_t kEventRoundingNs = 1'000;

// Valid while the program lives and its activities do not change.
class RecordedWaits {
 public:
  RecordedWaits(const Trace& trace, const DeviceProgram& program);

  // Returns the last activity that a host call waits for according to its row:
  // the last one launched before the call to its stream, or the last one
  // launched to the event's stream before the event was recorded. kNoActivity
  // if there is no row, the row does not say, or there is no such activity.
  uint32_t TargetOf(RowId call) const;

  // True if the row of a cudaStreamWaitEvent call names the event's stream.
  bool NamesWaitOf(RowId call) const {
    const auto found = sync_of_call_.find(call);
    return found != sync_of_call_.end() && found->second->wait_on_stream >= 0;
  }

  // True if the recording names waits of `stream`, as numbered in the program.
  bool Names(uint32_t stream) const {
    return stream < waits_.size() && !waits_[stream].empty();
  }

  // Calls `visit` with the activities of other streams that `activity` waits
  // for. It has to be called for all activities in the order of launching.
  template <typename Visit>
  void ForEachNewWait(uint32_t activity, const Visit& visit) {
    const uint32_t stream = program_.activities[activity].stream;
    const std::vector<Wait>& waits = waits_[stream];
    size_t& next = next_[stream];
    for (; next < waits.size() && waits[next].since_ns <= Launched(activity);
         ++next) {
      if (CanPrecede(waits[next].on, activity)) visit(waits[next].on);
    }
  }

 private:
  // Everything launched to the stream from `since_ns` on waits for `on`.
  struct Wait {
    int64_t since_ns;
    uint32_t on;
  };

  int64_t Launched(uint32_t activity) const;
  bool CanPrecede(uint32_t first, uint32_t second) const;
  uint32_t StreamOf(int32_t device, int64_t stream) const;
  uint32_t LastLaunched(uint32_t stream, int64_t before_ns) const;
  uint32_t MarkedBy(const Sync& sync) const;

  const Trace& trace_;
  const DeviceProgram& program_;
  std::map<std::pair<int32_t, int64_t>, uint32_t> streams_;
  std::vector<std::vector<uint32_t>> by_stream_;  // activities, as launched
  std::unordered_map<int64_t, RowId> events_;  // the call that recorded each,
                                               // by correlation
  std::unordered_map<RowId, const Sync*> sync_of_call_;
  std::vector<std::vector<Wait>> waits_;  // by stream that waits, in time order
  std::vector<size_t> next_;              // by stream, into waits_
};

}  // namespace stepscope
