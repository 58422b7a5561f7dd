#include "ascent.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "measure/child.h"
#include "measure/remedies.h"

namespace climb {
namespace {

using measure::Advice;
using measure::AdvisedChange;
using measure::Settings;

constexpr int kBatch = 32;  // resnet's own
// So many times as many steps are recorded at most where a report holds
// something back.
constexpr int kMostTimes = 4;

// Some profiles of the same settings, by step time; of `times` the steps.
absl::StatusOr<std::vector<Advice>> ProfileSome(measure::Bench& bench,
                                                const Settings& settings,
                                                size_t number, int profiles,
                                                int times) {
  std::vector<Advice> all;
  for (int i = 0; i < profiles; ++i) {
    std::string name =
        "profiles/" + std::to_string(number) + "." + std::to_string(i);
    if (times > 1) name += "." + std::to_string(times) + "times";
    absl::StatusOr<Advice> advice = bench.Profile(settings, name, times);
    if (!advice.ok()) return advice.status();
    all.push_back(*std::move(advice));
  }
  std::ranges::stable_sort(all, {}, &Advice::step_ms);
  return all;
}

// The one in the middle: a report that the machine disturbed is not followed.
const Advice& Middle(const std::vector<Advice>& by_step) {
  return by_step[(by_step.size() - 1) / 2];
}

// The first finding that a flag follows to settings not tried before.
Choice Choose(const Advice& advice, const Settings& now,
              const std::set<std::string>& tried) {
  Choice choice = {.advice = &advice};
  for (const AdvisedChange& change : advice.findings) {
    if (!change.ToBeDone()) continue;
    Settings after = measure::Follow(change, advice, now);
    if (measure::Spelled(after) == measure::Spelled(now)) {
      choice.left.push_back({change.id, "no flag of the sample does that"});
    } else if (tried.contains(measure::Spelled(after).Text())) {
      choice.left.push_back({change.id, "tried before: " + after.Text()});
    } else {
      choice.change = &change;
      choice.after = std::move(after);
      return choice;
    }
  }
  return choice;
}

// True if the program does its work with the settings from which a change made
// it fail.
bool Works(measure::Bench& bench, const Settings& settings,
           const AscentOptions& options, size_t number) {
  return bench
      .Time(settings, options.length, "without change",
            static_cast<int>(number) + 1)
      .ok();
}

}  // namespace

Choice Decide(const std::vector<Advice>& reports, const Settings& now,
              const std::set<std::string>& tried) {
  Choice middle = Choose(Middle(reports), now, tried);
  if (middle.change != nullptr) return middle;
  for (const Advice& one : reports) {
    Choice choice = Choose(one, now, tried);
    if (choice.change == nullptr) continue;
    const auto agrees = [&](const Advice& other) {
      const Choice its = Choose(other, now, tried);
      return its.change != nullptr && its.change->id == choice.change->id &&
             measure::Spelled(its.after) == measure::Spelled(choice.after);
    };
    const auto votes = std::ranges::count_if(reports, agrees);
    if (2 * votes > static_cast<std::ptrdiff_t>(reports.size())) return choice;
  }
  return middle;
}

std::vector<const Step*> Ascent::Failures() const {
  std::vector<const Step*> failures;
  for (const Step& step : steps) {
    if (!step.failed.empty() ||
        step.measured.outcome() == measure::Outcome::kSlower) {
      failures.push_back(&step);
    }
  }
  return failures;
}

Step Promise(const AdvisedChange& change, const Advice& advice,
             const Settings& before, const Settings& after, int period) {
  Step step;
  step.id = change.id;
  step.gain_is = change.gain_is;
  step.before = before;
  step.after = after;
  const measure::PromisedStep promised =
      measure::PromisedBy(change, advice, period);
  step.recorded_ms = promised.before_ms;
  // Gains are per sample of the recorded batch.
  const double larger = static_cast<double>(after.Number("--batch", kBatch)) /
                        static_cast<double>(before.Number("--batch", kBatch));
  step.predicted_ms = larger * promised.after_ms;
  step.predicted_low_ms = larger * promised.low_ms;
  step.predicted_high_ms = larger * promised.high_ms;
  if (promised.before_ms > 0) {
    step.predicted_ratio = promised.after_ms / promised.before_ms;
  }
  return step;
}

absl::StatusOr<Ascent> Ascend(measure::Bench& bench, const Settings& start,
                              const AscentOptions& options) {
  Ascent ascent;
  ascent.start = ascent.end = start;
  std::set<std::string> tried = {measure::Spelled(start).Text()};
  int times = 1;
  while (true) {
    const size_t number = ascent.steps.size();
    absl::StatusOr<std::vector<Advice>> reports =
        ProfileSome(bench, ascent.end, number, options.profiles, times);
    if (!reports.ok()) return reports.status();
    Choice choice = Decide(*reports, ascent.end, tried);
    ascent.left = std::move(choice.left);
    ascent.healthy = choice.advice->Healthy();
    if (choice.change == nullptr) {
      const std::vector<std::string>& held_back = choice.advice->held_back;
      if (!held_back.empty() && times < kMostTimes) {
        times *= 2;
        continue;
      }
      for (const std::string& id : held_back) {
        ascent.left.push_back(
            {id, "held back: the steps vary too much to tell"});
      }
      return ascent;
    }
    if (number >= static_cast<size_t>(options.max_changes)) {
      ascent.left.push_back({choice.change->id, "enough changes were made"});
      return ascent;
    }

    Step step = Promise(*choice.change, *choice.advice, ascent.end,
                        choice.after, bench.Period(ascent.end, choice.after));
    absl::StatusOr<measure::Comparison> measured =
        bench.Compare(step.before, step.after, options.pairs,
                      "change " + std::to_string(number + 1), options.length);
    if (measured.ok()) {
      step.measured = *std::move(measured);
      step.kept = step.measured.ToBeKept();
    } else if (measure::ProgramFailed(measured.status()) &&
               Works(bench, step.before, options, number)) {
      step.failed = std::string(measured.status().message());
    } else {
      return measured.status();
    }
    tried.insert(measure::Spelled(step.after).Text());
    if (step.kept) {
      ascent.end = step.after;
      times = 1;
    }
    if (options.tell) options.tell(step);
    ascent.steps.push_back(std::move(step));
  }
}

}  // namespace climb
