// Infers what waits for what in a run with a GPU: which activity a blocking
// call waits for, and which activity of another stream an activity waits for.
// Recordings show that a wait was issued, but not always what it waited for. A
// wait is inferred only if one was issued.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "replay/gpu/device_program.h"

namespace stepscope {

// A call of at most 10 us did not wait, unless it launches into a full queue.
inline constexpr int64_t kShortCallNs = 10'000;

// Sets DeviceNode::queued and DeviceProgram::deepest_queue.
void CountQueued(DeviceProgram& program);

// Sets wait, target, own_ns, tail_ns and before_ns of the blocking host nodes.
// REQUIRES: CountQueued() was called.
void FindCallWaits(const Trace& trace, DeviceProgram& program);

// Returns the median time in ns of the launch calls that do not wait.
// REQUIRES: CountQueued() was called.
int64_t UsualLaunchNs(const DeviceProgram& program);

// Sets DeviceProgram::waits, and the latency, overlap and late start of each
// activity. REQUIRES: first_begin_ns and first_lag_ns are set.
void FindStreamWaits(const Trace& trace, DeviceProgram& program);

// The activities of a program in the order in which they ended. Valid while the
// program lives and its activities do not change.
class ByEnd {
 public:
  explicit ByEnd(const DeviceProgram& program);

  // Returns the activity that ended last by `time_ns` among those that `wanted`
  // accepts. Returns kNoActivity if it accepts none of the last 256, because
  // nothing waits for an activity that ended so long ago.
  template <typename Wanted>
  uint32_t LastBy(int64_t time_ns, const Wanted& wanted) const {
    auto after = FirstAfter(time_ns);
    for (int i = 0; i < kTries && after != order_.begin(); ++i) {
      --after;
      if (wanted(*after)) return *after;
    }
    return kNoActivity;
  }

 private:
  static constexpr int kTries = 256;
  std::vector<uint32_t>::const_iterator FirstAfter(int64_t time_ns) const;

  const DeviceProgram& program_;
  std::vector<uint32_t> order_;
};

}  // namespace stepscope
