#include "ascent.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "measure/remedies.h"

namespace climb {
namespace {

using measure::Advice;
using measure::AdvisedChange;
using measure::Settings;

constexpr int kBatch = 32;  // resnet's own

// Some profiles of the same settings, by step time.
absl::StatusOr<std::vector<Advice>> ProfileSome(measure::Bench& bench,
                                                const Settings& settings,
                                                size_t number, int profiles) {
  std::vector<Advice> all;
  for (int i = 0; i < profiles; ++i) {
    absl::StatusOr<Advice> advice =
        bench.Profile(settings, "profiles/" + std::to_string(number) + "." +
                                    std::to_string(i));
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
    if (step.measured.outcome() == measure::Outcome::kSlower) {
      failures.push_back(&step);
    }
  }
  return failures;
}

Step Promise(const AdvisedChange& change, const Advice& advice,
             const Settings& before, const Settings& after) {
  Step step;
  step.id = change.id;
  step.gain_is = change.gain_is;
  step.before = before;
  step.after = after;
  step.recorded_ms = advice.step_ms;
  // Gains are per sample of the recorded batch.
  const double larger = static_cast<double>(after.Number("--batch", kBatch)) /
                        static_cast<double>(before.Number("--batch", kBatch));
  const auto with = [&](double gain_ms) {
    return larger * (advice.step_ms - gain_ms);
  };
  step.predicted_ms = with(change.gain_ms);
  step.predicted_low_ms = with(change.gain_high_ms);
  step.predicted_high_ms = with(change.gain_low_ms);
  if (advice.step_ms > 0) {
    step.predicted_ratio = (advice.step_ms - change.gain_ms) / advice.step_ms;
  }
  return step;
}

absl::StatusOr<Ascent> Ascend(measure::Bench& bench, const Settings& start,
                              const AscentOptions& options) {
  Ascent ascent;
  ascent.start = ascent.end = start;
  std::set<std::string> tried = {measure::Spelled(start).Text()};
  while (true) {
    const size_t number = ascent.steps.size();
    absl::StatusOr<std::vector<Advice>> reports =
        ProfileSome(bench, ascent.end, number, options.profiles);
    if (!reports.ok()) return reports.status();
    Choice choice = Decide(*reports, ascent.end, tried);
    ascent.left = std::move(choice.left);
    ascent.healthy = choice.advice->Healthy();
    if (choice.change == nullptr) return ascent;
    if (number >= static_cast<size_t>(options.max_changes)) {
      ascent.left.push_back({choice.change->id, "enough changes were made"});
      return ascent;
    }

    Step step =
        Promise(*choice.change, *choice.advice, ascent.end, choice.after);
    absl::StatusOr<measure::Comparison> measured =
        bench.Compare(step.before, step.after, options.pairs,
                      "change " + std::to_string(number + 1), options.length);
    if (!measured.ok()) return measured.status();
    step.measured = *std::move(measured);
    // Kept unless it is the slower one of the two, whether or not beyond doubt:
    // what brings nothing is not worth a flag.
    step.kept = step.measured.ratio() < 1;
    tried.insert(measure::Spelled(step.after).Text());
    if (step.kept) ascent.end = step.after;
    if (options.tell) options.tell(step);
    ascent.steps.push_back(std::move(step));
  }
}

}  // namespace climb
