// Who waits for whom in a run with a GPU, where the recording does not say it:
// blocking calls for device works, and works for works of other streams
// (rules.md 2.4). A wait is inferred only where one was issued.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "replay/gpu/device_program.h"

namespace stepscope {

// Fills wait, target, own_ns, tail_ns and before_ns of the nodes that block.
void FindCallWaits(const Trace& trace, DeviceProgram& program);

// Fills waits, latency_ns, overlap_ns and extra_ns of the works.
void FindStreamWaits(const Trace& trace, DeviceProgram& program);

// The works of a program in the order in which they ended.
class ByEnd {
 public:
  explicit ByEnd(const DeviceProgram& program);

  // The last to end by `time_ns` of those that `wanted` takes. Gives up after
  // some tries: what ended long before holds nothing up.
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
