// What a recording does not tell replay about a change. The defaults are the
// likely values; the engine varies them to give a gain its range.
#pragma once

#include <cstdint>

namespace stepscope {

// Typical host time to make one autograd node, in ns.
inline constexpr int64_t kNodeNs = 700;

struct ReplayParameters {
  // Twice the intra-op threads make a parallel op 2 x this as fast; the first
  // doubling loses a third as much.
  double thread_efficiency = 0.85;
  // CPU time of a batch in a loader worker / the same on the training thread.
  double worker_cost = 1;
  // Device time that Edit::scales really saves / what they say.
  double scale_effect = 1;
  // The same where they are assumed.
  double assumed_effect = 1;
};

}  // namespace stepscope
