// WindowAt() and SteadyStepAt(): which step contains a moment. They search in
// logarithmic time, so they can be called for every row of a recording with
// thousands of steps. AreMostSteps(): whether something is a habit of the
// steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "ops/intervals.h"
#include "steps/steps.h"

namespace stepscope {

// Returns the index of the window whose host or tiled span (`span` is
// &StepWindow::host or &StepWindow::tiled) contains `time_ns`;
// steps.windows.size() if there is none.
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

// The same, but only steady steps count.
inline size_t SteadyStepAt(const Steps& steps, int64_t time_ns,
                           Span StepWindow::*span = &StepWindow::host) {
  const size_t index = WindowAt(steps, span, time_ns);
  return std::ranges::binary_search(steps.steady, index) ? index
                                                         : steps.windows.size();
}

// True if `count` of the steady steps are two thirds of them or more: what a
// loop does in fewer is no part of each step.
inline bool AreMostSteps(const Steps& steps, size_t count) {
  constexpr double kMost = 2.0 / 3;
  return static_cast<double>(count) >=
         kMost * static_cast<double>(steps.steady.size());
}

// True if there is one of `found`, each with the index of its steady step, in
// two thirds of these steps.
template <typename Found>
bool RecursInMostSteps(const Steps& steps, const std::vector<Found>& found) {
  std::set<size_t> in;
  for (const Found& one : found) in.insert(one.step);
  return !found.empty() && AreMostSteps(steps, in.size());
}

// True if the host window of a steady step contains `time_ns`.
inline bool InSteadyStep(const Steps& steps, int64_t time_ns) {
  return SteadyStepAt(steps, time_ns) != steps.windows.size();
}

}  // namespace stepscope
