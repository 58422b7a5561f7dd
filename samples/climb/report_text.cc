#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "measure/remedies.h"
#include "report.h"

namespace climb {
namespace {

using measure::Interval;
using measure::Outcome;

constexpr size_t kShownPoints = 5;
constexpr double kGoodPrediction = 0.15;

__attribute__((format(printf, 1, 2))) std::string Line(const char* format,
                                                       ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return std::string(text) + "\n";
}

bool Measured(const Step& step) { return step.failed.empty(); }

const char* Verdict(const Step& step) {
  switch (step.measured.outcome()) {
    case Outcome::kFaster:
      return "faster: kept";
    case Outcome::kSlower:
      return "SLOWER: taken back, the rule was wrong";
    case Outcome::kUnclear:
      return step.kept ? "not told apart from noise: kept"
                       : "not told apart from noise, and not faster: taken "
                         "back";
  }
  return "";
}

std::string LeftText(const Ascent& ascent) {
  std::string text;
  if (ascent.healthy) text += Line("The report finds nothing worth doing.");
  for (const Left& left : ascent.left) {
    text += Line("left: %s (%s)", left.id.c_str(), left.why.c_str());
  }
  return text;
}

std::string PredictionsText(const Ascent& ascent) {
  size_t good = 0, predictions = 0, bounds = 0;
  double worst = 0, worst_ratio = 0;
  for (const Step& step : ascent.steps) {
    if (!Measured(step)) continue;
    if (step.gain_is != "predicted") {
      ++bounds;
      continue;
    }
    ++predictions;
    good += std::abs(step.error()) <= kGoodPrediction ? 1 : 0;
    if (std::abs(step.error()) > std::abs(worst)) worst = step.error();
    if (std::abs(step.ratio_error()) > std::abs(worst_ratio)) {
      worst_ratio = step.ratio_error();
    }
  }
  if (ascent.steps.empty()) return "";
  std::string text = Line(
      "predictions: %zu of %zu within 15 %% of the measured step, the "
      "worst off by %+.1f %% (of the time per sample, after / before: %+.1f "
      "%%); fixes that made it slower or fail: %zu",
      good, predictions, 100 * worst, 100 * worst_ratio,
      ascent.Failures().size());
  if (bounds > 0) text += Line("bounds, not counted in: %zu", bounds);
  return text;
}

std::string SweepText(const Result& result) {
  if (result.sweep.empty()) return "";
  std::string text = Line("sweep of %zu settings, the best by samples/s:",
                          result.sweep.size());
  const size_t shown = std::min(kShownPoints, result.sweep.size());
  for (size_t i = 0; i < shown; ++i) {
    const Swept& point = result.sweep[i];
    text += Line("  %7.1f  %s", point.median(), point.settings.Text().c_str());
  }
  if (!result.against_best) {
    return text + Line("the climb ends at the best of them");
  }
  const Interval times = result.against_best->interval();
  return text + Line(
                    "the climb's end against the best, run in turn: %.1f "
                    "against %.1f samples/s, %.1f %% of it (95 %%: %.1f to "
                    "%.1f)",
                    result.samples_per_s(), result.best_samples_per_s(),
                    100 / result.against_best->ratio(), 100 / times.high,
                    100 / times.low);
}

}  // namespace

std::string StepText(const Step& step, size_t number) {
  const measure::Comparison& measured = step.measured;
  const Interval ratio = measured.interval();
  const Interval after = measured.after_interval_ms();
  std::string text = Line("%zu  %s: %s", number, step.id.c_str(),
                          measure::Difference(step.before, step.after).c_str());
  text += Line(
      "   report    %.1f to %.1f ms per step (likely %.1f to "
      "%.1f%s)",
      step.recorded_ms, step.predicted_ms, step.predicted_low_ms,
      step.predicted_high_ms, step.gain_is == "predicted" ? "" : "; at best");
  if (!Measured(step)) {
    return text + "   taken back, the program fails with it: " + step.failed +
           "\n";
  }
  text += Line(
      "   measured  %.1f to %.1f ms per step (95 %%: %.1f to %.1f; "
      "%zu pairs)",
      measured.before_ms(), measured.after_ms(), after.low, after.high,
      measured.after.size());
  text += Line("   time per sample x %.3f (95 %%: %.3f to %.3f); %s",
               measured.ratio(), ratio.low, ratio.high, Verdict(step));
  return text + Line(
                    "   predicted against measured: step %+.1f %%, time per "
                    "sample x %.3f %+.1f %%",
                    100 * step.error(), step.predicted_ratio,
                    100 * step.ratio_error());
}

std::string HabitsText(const std::vector<HabitCost>& habits) {
  std::string text =
      Line("What each habit costs beside the others, ms per step:");
  for (const HabitCost& habit : habits) {
    const Interval range = habit.interval_ms();
    text += Line("  %-16s %7.1f (95 %%: %.1f to %.1f)%s", habit.name.c_str(),
                 habit.cost_ms(), range.low, range.high,
                 habit.Costs() ? "" : "  within the noise");
  }
  return text;
}

std::string EndText(const Result& result) {
  const Ascent& ascent = result.ascent;
  const Interval ratio = result.whole.interval();
  std::string text = LeftText(ascent) + PredictionsText(ascent);
  text += Line("from %s", ascent.start.Text().c_str());
  text += Line("to   %s", ascent.end.Text().c_str());
  if (measure::Spelled(ascent.start) == measure::Spelled(ascent.end)) {
    text += Line("%.1f samples/s; nothing was changed", result.samples_per_s());
  } else if (!result.whole.after.empty()) {
    text += Line("%.1f to %.1f samples/s, x %.2f (95 %%: %.2f to %.2f)",
                 result.whole.before_samples_per_s(),
                 result.whole.after_samples_per_s(), 1 / result.whole.ratio(),
                 1 / ratio.high, 1 / ratio.low);
  }
  if (!result.habits.empty()) {
    for (const HabitCost& habit : result.habits) {
      text +=
          habit.at_end
              ? Line("  %-16s %7.1f ms  stays; costs %.1f ms at the end%s",
                     habit.name.c_str(), habit.cost_ms(), habit.end_cost_ms(),
                     habit.CostsAtEnd() ? "" : ", within the noise")
              : Line("  %-16s %7.1f ms  goes at step %d", habit.name.c_str(),
                     habit.cost_ms(), habit.removed_at + 1);
    }
    for (const std::string& complaint : Complaints(result.habits)) {
      text += "WRONG: " + complaint + "\n";
    }
  }
  return text + SweepText(result);
}

}  // namespace climb
