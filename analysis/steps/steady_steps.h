// WindowAt() and SteadyStepAt(): which step contains a moment. They search in
// logarithmic time, so they can be called for every row of a recording with
// thousands of steps. AreMostSteps(): whether something happens in most steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

#include "ops/intervals.h"
#include "steps/step_window.h"

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

// The same, but all steps except warm-up count.
inline size_t CountedStepAt(const Steps& steps, int64_t time_ns) {
  const size_t index = WindowAt(steps, &StepWindow::host, time_ns);
  return index < steps.windows.size() &&
                 steps.windows[index].kind != StepKind::kWarmUp
             ? index
             : steps.windows.size();
}

// The share of the steady steps that rules call most of them. What a loop does
// in fewer steps is not part of its usual step. Our own choice.
inline constexpr double kMostSteps = 2.0 / 3;

// True if `count` is at least that share of the steady steps.
inline bool AreMostSteps(const Steps& steps, size_t count) {
  return static_cast<double>(count) >=
         kMostSteps * static_cast<double>(steps.steady.size());
}

// True if at least two thirds of the steady steps have an element in `found`.
// The member `step` of each element is the index of its steady step.
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
