// WindowAt() and SteadyStepAt(): which step holds a moment. For whoever asks of
// every row: recordings may have thousands of steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "ops/intervals.h"
#include "steps/steps.h"

namespace stepscope {

// Of the windows' host or tiled spans, the one that holds `time_ns`: an index
// into windows; their number where none does.
inline size_t WindowAt(const Steps& steps, Span StepWindow::*span,
                       int64_t time_ns) {
  const auto after = std::ranges::upper_bound(
      steps.windows, time_ns, {},
      [&](const StepWindow& window) { return (window.*span).begin_ns; });
  if (after == steps.windows.begin() ||
      time_ns >= ((*std::prev(after)).*span).end_ns) {
    return steps.windows.size();
  }
  return static_cast<size_t>(std::prev(after) - steps.windows.begin());
}

// The same among the steady ones.
inline size_t SteadyStepAt(const Steps& steps, int64_t time_ns,
                           Span StepWindow::*span = &StepWindow::host) {
  const size_t index = WindowAt(steps, span, time_ns);
  return std::ranges::binary_search(steps.steady, index) ? index
                                                         : steps.windows.size();
}

inline bool InSteadyStep(const Steps& steps, int64_t time_ns) {
  return SteadyStepAt(steps, time_ns) != steps.windows.size();
}

}  // namespace stepscope
