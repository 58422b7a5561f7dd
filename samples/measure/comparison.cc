#include "comparison.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace measure {
namespace {

// The flags of the sample that do something every N steps, N being their
// value.
constexpr const char* kEveryFlags[] = {"--validate-every", "--checkpoint-every",
                                       "--workers"};
constexpr int kLogEvery = 5;  // resnet's own

std::vector<double> MedianSteps(const std::vector<RunTimes>& runs, int period) {
  std::vector<double> steps;
  for (const RunTimes& run : runs) steps.push_back(run.MedianMs(period));
  return steps;
}

double SamplesPerSecond(const std::vector<RunTimes>& runs, int period) {
  std::vector<double> rates;
  for (const RunTimes& run : runs) rates.push_back(1000 / run.SampleMs(period));
  return Median(std::move(rates));
}

std::vector<double> Ratios(const Comparison& comparison) {
  std::vector<double> ratios;
  for (size_t i = 0; i < comparison.before.size(); ++i) {
    ratios.push_back(comparison.after[i].SampleMs(comparison.period) /
                     comparison.before[i].SampleMs(comparison.period));
  }
  return ratios;
}

}  // namespace

double Comparison::before_ms() const {
  return Median(MedianSteps(before, period));
}

double Comparison::after_ms() const {
  return Median(MedianSteps(after, period));
}

double Comparison::before_samples_per_s() const {
  return SamplesPerSecond(before, period);
}

double Comparison::after_samples_per_s() const {
  return SamplesPerSecond(after, period);
}

double Comparison::ratio() const { return Median(Ratios(*this)); }

Interval Comparison::interval() const { return MedianInterval(Ratios(*this)); }

Interval Comparison::after_interval_ms() const {
  const double scale = after_ms() / ratio();
  const Interval range = interval();
  return {range.low * scale, range.high * scale};
}

Outcome Comparison::outcome() const {
  const Interval range = interval();
  if (range.high < 1) return Outcome::kFaster;
  return range.low > 1 ? Outcome::kSlower : Outcome::kUnclear;
}

absl::StatusOr<Comparison> Compare(const RunOnce& run, const Settings& before,
                                   const Settings& after, int pairs,
                                   int period) {
  Comparison comparison;
  comparison.period = period;
  for (int pair = 0; pair < pairs; ++pair) {
    const bool after_first = pair % 2 == 1;
    for (const bool is_after : {after_first, !after_first}) {
      absl::StatusOr<RunTimes> times = run(is_after ? after : before, pair);
      if (!times.ok()) return times.status();
      (is_after ? comparison.after : comparison.before)
          .push_back(*std::move(times));
    }
  }
  return comparison;
}

int PeriodOf(const Settings& settings) {
  int period = 1;
  for (const char* flag : kEveryFlags) {
    period = std::lcm(period, std::max(1, settings.Number(flag, 1)));
  }
  if (settings.Get("--device") == "cuda") {
    period = std::lcm(period,
                      std::max(1, settings.Number("--log-every", kLogEvery)));
  }
  return period;
}

Length WholePeriods(Length length, int period) {
  const int timed = std::max(1, length.steps - length.warm_steps);
  const int periods = (timed + period - 1) / period;
  return {.steps = length.warm_steps + periods * period,
          .warm_steps = length.warm_steps};
}

}  // namespace measure
