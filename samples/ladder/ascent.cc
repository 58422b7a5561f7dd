#include "ascent.h"

#include <algorithm>
#include <utility>

namespace ladder {
namespace {

using measure::Advice;
using measure::RunTimes;
using measure::Settings;

// Fills in the samples per second of some runs of one rung.
void Rate(const std::vector<RunTimes>& runs, Taken* taken) {
  std::vector<double> rates;
  for (const RunTimes& run : runs) rates.push_back(1000 / run.SampleMs());
  if (rates.empty()) return;
  auto [low, high] = std::ranges::minmax(rates);
  taken->samples_per_s_low = low;
  taken->samples_per_s_high = high;
  taken->samples_per_s = measure::Median(std::move(rates));
}

// Steps of `step_ms` that become shorter by `gain_ms`, as a factor on
// samples/s. A gain of the whole step is no prediction: it is left at what is
// certain.
double Factor(double step_ms, double gain_ms) {
  return gain_ms < step_ms ? step_ms / (step_ms - gain_ms) : 1;
}

}  // namespace

measure::Interval Taken::factor_interval() const {
  measure::Interval ratio = measured.interval();
  return {1 / ratio.high, 1 / ratio.low};
}

Reason ReasonFor(const Rung& rung, const Advice& advice) {
  for (const measure::AdvisedChange& change : advice.findings) {
    const bool leads_here =
        std::ranges::find(rung.findings, change.id) != rung.findings.end();
    if (!leads_here || !change.ToBeDone()) continue;
    return {.finding = change.id,
            .gain_is = change.gain_is,
            .factor = Factor(advice.step_ms, change.gain_ms),
            .factor_low = Factor(advice.step_ms, change.gain_low_ms),
            .factor_high = Factor(advice.step_ms, change.gain_high_ms)};
  }
  return {};
}

absl::StatusOr<std::vector<Taken>> GoUp(measure::Bench& bench,
                                        const std::vector<Rung>& rungs,
                                        const GoUpOptions& options) {
  std::vector<Taken> all;
  Settings below;
  Advice report;  // of the rung below
  for (size_t i = 0; i < rungs.size(); ++i) {
    Taken taken{.rung = rungs[i]};
    absl::StatusOr<Settings> flags = Settings::Parse(rungs[i].flags);
    if (!flags.ok()) return flags.status();
    taken.settings = below.With(*flags);
    const std::string number = std::to_string(i);
    absl::StatusOr<Advice> advice =
        bench.Profile(taken.settings, "profiles/" + number);
    if (!advice.ok()) return advice.status();
    absl::StatusOr<ProfileFacts> facts = ReadProfile(advice->path);
    if (!facts.ok()) return facts.status();
    taken.facts = *std::move(facts);
    if (i > 0) {
      absl::StatusOr<measure::Comparison> measured =
          bench.Compare(below, taken.settings, options.pairs, "rung " + number,
                        options.length);
      if (!measured.ok()) return measured.status();
      taken.measured = *std::move(measured);
      taken.reason = ReasonFor(taken.rung, report);
      taken.kept = taken.measured.outcome() != measure::Outcome::kSlower;
      Rate(taken.measured.after, &taken);
      if (i == 1) {
        Rate(taken.measured.before, &all[0]);
        if (options.tell) options.tell(all[0]);
      }
      if (options.tell) options.tell(taken);
    }
    if (taken.kept) {
      below = taken.settings;
      report = *std::move(advice);
    }
    all.push_back(std::move(taken));
  }
  return all;
}

}  // namespace ladder
