#include "cube.h"

#include <algorithm>
#include <utility>

#include "measure/remedies.h"

namespace cube {
namespace {

using measure::Settings;

constexpr int kWarmSteps = 3;

// What the report of a profile at `base` says about changes to it.
std::vector<Expected> ExpectedFrom(const measure::Advice& advice,
                                   const Settings& base) {
  std::vector<Expected> expected;
  for (const measure::AdvisedChange& change : advice.findings) {
    if (change.gain_is != "predicted") continue;
    Settings after = measure::Follow(change, advice, base);
    if (measure::Spelled(after) == measure::Spelled(base)) continue;
    expected.push_back({std::move(after), change.id,
                        advice.step_ms / (advice.step_ms - change.gain_ms)});
  }
  if (advice.plan.after_ms > 0) {
    Settings after = measure::FollowNames(advice.plan.settings, base);
    if (measure::Spelled(after) != measure::Spelled(base)) {
      expected.push_back({std::move(after), "plan",
                          advice.plan.before_ms / advice.plan.after_ms});
    }
  }
  return expected;
}

}  // namespace

std::optional<double> Measured::ExpectedOf(const Settings& settings) const {
  for (const Expected& entry : expected) {
    if (measure::Spelled(entry.settings) == measure::Spelled(settings)) {
      return entry.ratio;
    }
  }
  return std::nullopt;
}

absl::StatusOr<Measured> MeasureCube(measure::Bench& bench,
                                     const Options& options,
                                     const Accepts& accepts) {
  Measured measured;
  Cube& cube = measured.cube;
  cube.factors = options.factors;
  for (measure::Point& point : measure::Cross(options.factors, options.base)) {
    const absl::Status accepted = accepts(point.settings.Arguments());
    if (accepted.ok()) {
      cube.points.push_back(std::move(point));
    } else {
      measured.left_out.push_back(
          {point.settings, std::string(accepted.message())});
    }
  }
  if (cube.points.size() < 2) {
    return absl::InvalidArgumentError(
        "fewer than two combinations are left: " +
        (measured.left_out.empty() ? "" : measured.left_out[0].why));
  }

  const Settings& baseline = cube.points[0].settings;
  absl::StatusOr<measure::Advice> advice = bench.Profile(baseline, "baseline");
  if (!advice.ok()) return advice.status();
  measured.expected = ExpectedFrom(*advice, baseline);

  cube.rates.resize(cube.points.size());
  const measure::Length length{.steps = options.steps,
                               .warm_steps = kWarmSteps};
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < cube.points.size(); ++i) {
      // Up and down, so that a drift within a round evens out.
      const size_t p = round % 2 == 0 ? i : cube.points.size() - 1 - i;
      const Settings& settings = cube.points[p].settings;
      absl::StatusOr<measure::RunTimes> times =
          bench.Time(settings, length, "cube", round);
      if (!times.ok()) return times.status();
      cube.rates[p].push_back(1000 /
                              times->SampleMs(measure::PeriodOf(settings)));
    }
  }
  return measured;
}

}  // namespace cube
