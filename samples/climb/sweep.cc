#include "sweep.h"

#include <algorithm>
#include <string>
#include <utility>

#include "measure/statistics.h"

namespace climb {
namespace {

using measure::Settings;

constexpr size_t kKeepOneOf = 3;
constexpr size_t kFew = 6;  // these go into the last rounds
constexpr int kWarmSteps = 2;

// Small batches have shorter steps, so they get more of them.
measure::Length LengthOf(const Settings& settings, int steps) {
  const int batch = std::max(1, settings.Number("--batch", 32));
  return {.steps = std::max(steps, steps * 32 / batch) + kWarmSteps,
          .warm_steps = kWarmSteps};
}

absl::Status TimeOnce(measure::Bench& bench, Swept& point, int steps,
                      int round) {
  const int period = bench.Period(point.settings);
  absl::StatusOr<measure::RunTimes> times =
      bench.Time(point.settings,
                 measure::WholePeriods(LengthOf(point.settings, steps), period),
                 "sweep", round);
  if (!times.ok()) return times.status();
  point.samples_per_s.push_back(1000 / times->SampleMs(period));
  return absl::OkStatus();
}

void BestFirst(std::vector<Swept>& points, size_t count) {
  std::stable_sort(
      points.begin(), points.begin() + static_cast<std::ptrdiff_t>(count),
      [](const Swept& a, const Swept& b) { return a.median() > b.median(); });
}

}  // namespace

double Swept::median() const { return measure::Median(samples_per_s); }

const std::vector<measure::Factor>& Everything() {
  static const std::vector<measure::Factor>* const factors =
      new std::vector<measure::Factor>{
          {"--workers", {"0", "1", "2"}},  {"--threads", {"1", "2"}},
          {"--batch", {"16", "32", "64"}}, {"--channels-last", {"off", "on"}},
          {"--set-to-none", {"0", "1"}},   {"--sgd", {"loop", "fused"}},
      };
  return *factors;
}

absl::StatusOr<std::vector<Swept>> Sweep(
    measure::Bench& bench, const std::vector<measure::Factor>& factors,
    const Settings& base, int steps, int rounds) {
  std::vector<Swept> points;
  for (measure::Point& point : measure::Cross(factors, base)) {
    points.push_back({std::move(point.settings), {}});
  }
  // points[0, open) are still in; each round's runs last longer.
  size_t open = points.size();
  int round = 0;
  for (; open > kFew; ++round) {
    for (size_t i = 0; i < open; ++i) {
      absl::Status s = TimeOnce(bench, points[i], steps, round);
      if (!s.ok()) return s;
    }
    BestFirst(points, open);
    open = std::max(kFew, open / kKeepOneOf);
    steps += steps / 2;
  }
  for (const int last = round + rounds; round < last; ++round) {
    for (size_t i = 0; i < open; ++i) {
      absl::Status s = TimeOnce(bench, points[i], steps, round);
      if (!s.ok()) return s;
    }
  }
  BestFirst(points, open);
  return points;
}

}  // namespace climb
