// What a recording does not show about a change. The defaults are the likely
// values; the engine varies them to get the likely range of a gain.
#pragma once

#include <cstdint>

namespace stepscope {

// Typical host time to make one autograd node, in ns.
inline constexpr int64_t kNodeNs = 700;

struct ReplayParameters {
  // Doubling the intra-op threads makes a parallel op 2 * this times as fast.
  // The first doubling, from one thread to two, loses only a third as much.
  double thread_efficiency = 0.85;
  // CPU time of a batch in a loader worker / the same on the training thread.
  double worker_cost = 1;
  // Device time that Edit::scales actually save / the time their factors say.
  double scale_effect = 1;
  // The same for scales whose factor is assumed (ActivityScale::assumed).
  double assumed_effect = 1;
  bool operator==(const ReplayParameters&) const = default;
};

}  // namespace stepscope
