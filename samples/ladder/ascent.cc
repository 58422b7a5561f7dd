#include "ascent.h"

#include <algorithm>
#include <utility>

#include "measure/child.h"
#include "measure/remedies.h"

namespace ladder {
namespace {

using measure::Advice;
using measure::RunTimes;
using measure::Settings;

// Fills in the samples per second of some runs of one rung.
void Rate(const std::vector<RunTimes>& runs, int period, Taken* taken) {
  std::vector<double> rates;
  for (const RunTimes& run : runs) {
    rates.push_back(1000 / run.SampleMs(period));
  }
  if (rates.empty()) return;
  auto [low, high] = std::ranges::minmax(rates);
  taken->samples_per_s_low = low;
  taken->samples_per_s_high = high;
  taken->samples_per_s = measure::Median(std::move(rates));
}

// Profiles a rung, and measures it against the one below, if there is one.
// Returns its report.
absl::StatusOr<Advice> TakeRung(measure::Bench& bench, const Settings& below,
                                const GoUpOptions& options, size_t number,
                                Taken* taken) {
  absl::StatusOr<Advice> advice =
      bench.Profile(taken->settings, "profiles/" + std::to_string(number));
  if (!advice.ok()) return advice.status();
  absl::StatusOr<ProfileFacts> facts = ReadProfile(advice->path);
  if (!facts.ok()) return facts.status();
  taken->facts = *std::move(facts);
  if (number == 0) return advice;
  absl::StatusOr<measure::Comparison> measured =
      bench.Compare(below, taken->settings, options.pairs,
                    "rung " + std::to_string(number), options.length);
  if (!measured.ok()) return measured.status();
  taken->measured = *std::move(measured);
  return advice;
}

}  // namespace

measure::Interval Taken::factor_interval() const {
  measure::Interval ratio = measured.interval();
  return {1 / ratio.high, 1 / ratio.low};
}

Reason ReasonFor(const Rung& rung, const Advice& advice, const Settings& below,
                 const Settings& settings, int period) {
  for (const measure::AdvisedChange& change : advice.findings) {
    const bool leads_here =
        std::ranges::find(rung.findings, change.id) != rung.findings.end();
    if (!leads_here || !change.ToBeDone()) continue;
    const measure::PromisedStep step =
        measure::PromisedBy(change, advice, period);
    const Settings asked = measure::Follow(change, advice, below);
    const bool same = measure::Spelled(asked) == measure::Spelled(settings);
    return {.finding = change.id,
            .gain_is = change.gain_is,
            .factor = step.before_ms / step.after_ms,
            .factor_low = step.before_ms / step.high_ms,
            .factor_high = step.before_ms / step.low_ms,
            .of_change = same ? "" : measure::Difference(below, asked)};
  }
  return {};
}

absl::StatusOr<Ladder> GoUp(measure::Bench& bench,
                            const std::vector<Rung>& rungs,
                            const GoUpOptions& options) {
  Ladder ladder;
  std::vector<Taken>& all = ladder.rungs;
  Advice report;  // of the rung below
  for (size_t i = 0; i < rungs.size(); ++i) {
    const Settings below = all.empty() ? Settings() : all[ladder.top].settings;
    Taken taken{.rung = rungs[i]};
    absl::StatusOr<Settings> flags = Settings::Parse(rungs[i].flags);
    if (!flags.ok()) return flags.status();
    taken.settings = below.With(*flags);
    absl::StatusOr<Advice> advice = TakeRung(bench, below, options, i, &taken);
    if (!advice.ok() && (i == 0 || !measure::ProgramFailed(advice.status()))) {
      return advice.status();
    }
    if (!advice.ok()) {
      taken.kept = false;
      taken.failed = std::string(advice.status().message());
    } else if (i > 0) {
      const int period = taken.measured.period;
      taken.reason =
          ReasonFor(taken.rung, report, below, taken.settings, period);
      taken.kept = taken.measured.ToBeKept();
      Rate(taken.measured.after, period, &taken);
      if (all[0].samples_per_s == 0) {
        Rate(taken.measured.before, period, &all[0]);
        if (options.tell) options.tell(all[0]);
      }
    }
    if (taken.kept) {
      ladder.top = i;
      report = *std::move(advice);
    }
    if (i > 0 && options.tell) options.tell(taken);
    all.push_back(std::move(taken));
  }
  if (ladder.top > 0) {
    absl::StatusOr<measure::Comparison> whole =
        bench.Compare(all[0].settings, all[ladder.top].settings, options.pairs,
                      "the whole ladder", options.length);
    if (!whole.ok()) return whole.status();
    ladder.whole = *std::move(whole);
  }
  return ladder;
}

}  // namespace ladder
