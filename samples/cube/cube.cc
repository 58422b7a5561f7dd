#include "cube.h"

#include <algorithm>
#include <utility>

namespace cube {
namespace {

using measure::Settings;

constexpr int kWarmSteps = 3;

// Parts the combinations into those that `accepts` takes and the others.
// Errors: those of MeasureCube() that say InvalidArgument.
absl::Status Choose(const Options& options, const Accepts& accepts,
                    Measured& measured) {
  std::vector<measure::Point>& points = measured.cube.points;
  const std::vector<measure::Point> all =
      measure::Cross(options.factors, options.base);
  for (const measure::Point& point : all) {
    const absl::Status accepted = accepts(point.settings.Arguments());
    if (accepted.ok()) {
      points.push_back(point);
    } else {
      measured.left_out.push_back(
          {point.settings, std::string(accepted.message())});
    }
  }
  if (points.size() < 2) {
    return absl::InvalidArgumentError(
        "fewer than two combinations are left: " +
        (measured.left_out.empty() ? "" : measured.left_out[0].why));
  }
  if (points[0].levels != all[0].levels) {
    return absl::InvalidArgumentError(
        "the baseline, which has the first value of each flag, is refused: " +
        all[0].settings.Text() + ": " + measured.left_out[0].why +
        "; put values first that go together, such as " +
        points[0].settings.Text());
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<Ratio> Measured::ExpectedAlone(const Effect& effect) const {
  std::vector<size_t> levels(cube.factors.size(), 0);
  levels[effect.factor] = effect.level;
  const auto alone =
      std::ranges::find(cube.points, levels, &measure::Point::levels);
  if (alone == cube.points.end()) return std::nullopt;
  return expected.points[static_cast<size_t>(alone - cube.points.begin())];
}

absl::StatusOr<Measured> MeasureCube(measure::Bench& bench,
                                     const Options& options,
                                     const Accepts& accepts) {
  Measured measured;
  Cube& cube = measured.cube;
  cube.factors = options.factors;
  if (absl::Status s = Choose(options, accepts, measured); !s.ok()) return s;

  absl::StatusOr<measure::Advice> advice =
      bench.Profile(cube.points[0].settings, "baseline");
  if (!advice.ok()) return advice.status();
  measured.expected = Expect(*advice, cube);

  cube.rates.resize(cube.points.size());
  const measure::Length length{.steps = options.steps,
                               .warm_steps = kWarmSteps};
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < cube.points.size(); ++i) {
      // Up and down, so that a drift within a round evens out.
      const size_t p = round % 2 == 0 ? i : cube.points.size() - 1 - i;
      const Settings& settings = cube.points[p].settings;
      const int period = bench.Period(settings);
      absl::StatusOr<measure::RunTimes> times = bench.Time(
          settings, measure::WholePeriods(length, period), "cube", round);
      if (!times.ok()) return times.status();
      cube.rates[p].push_back(1000 / times->SampleMs(period));
    }
  }
  return measured;
}

}  // namespace cube
