// SteadyStepAt(): which steady step's host window holds a moment. For whoever
// asks of every row: recordings may have thousands of steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "steps.h"

namespace stepscope {

// An index into windows; their number where no steady step holds `time_ns`.
inline size_t SteadyStepAt(const Steps& steps, int64_t time_ns) {
  const auto after = std::ranges::upper_bound(
      steps.windows, time_ns, {},
      [](const StepWindow& window) { return window.host.begin_ns; });
  if (after == steps.windows.begin()) return steps.windows.size();
  const auto index =
      static_cast<size_t>(std::prev(after) - steps.windows.begin());
  const bool holds = time_ns < std::prev(after)->host.end_ns &&
                     std::ranges::binary_search(steps.steady, index);
  return holds ? index : steps.windows.size();
}

inline bool InSteadyStep(const Steps& steps, int64_t time_ns) {
  return SteadyStepAt(steps, time_ns) != steps.windows.size();
}

}  // namespace stepscope
