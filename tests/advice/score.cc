#include "advice/score.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

namespace stepscope {
namespace {

// A gain may exceed a bound by this share of the step, because jitter can cause
// it.
constexpr double kNoise = 0.03;
// A fault that costs at least this share of the step must be found.
constexpr double kClear = 0.03;

bool Has(const std::vector<std::string>& list, const std::string& id) {
  return std::ranges::find(list, id) != list.end();
}

// True if another finding owns the time: each cause gets one advice.
bool IsMutedBy(const Report& report, const std::string& id,
               const std::vector<std::string>& owners) {
  return std::ranges::any_of(owners, [&](const std::string& owner) {
    return Has(report.superseded, id + " (by " + owner + ")");
  });
}

std::string Text(const char* format, double a, double b, double c) {
  char text[200];
  std::snprintf(text, sizeof text, format, a, b, c);
  return text;
}

double ErrorOf(double predicted, double gain_ms) {
  return std::abs(predicted / std::max(gain_ms, 1e-6) - 1);
}

bool IsOff(double predicted, double gain_ms, double limit, double step_ms) {
  return std::abs(predicted - gain_ms) >
         limit * std::max(gain_ms, 0.0) + kJitter * step_ms;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + values.size() / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::string Line(const std::string& name, const RuleScore& s) {
  const auto share = [](int part, int whole) {
    if (whole == 0) return std::string("    -");
    return Text("%5.3f", static_cast<double>(part) / whole, 0, 0);
  };
  char text[300];
  std::snprintf(text, sizeof text, "%-26s %7d %s %7d %s %7d", name.c_str(),
                s.planted, share(s.found, s.planted).c_str(), s.others,
                share(s.found, s.found + s.elsewhere).c_str(),
                static_cast<int>(s.errors.size()));
  std::string line = text;
  if (s.errors.empty()) {
    line += "      -      -";
  } else {
    line += Text(" %5.1f%% %5.1f%%", 100 * Median(s.errors),
                 100 * std::ranges::max(s.errors), 0);
  }
  if (s.bounds > 0) {
    line += "   " + std::to_string(s.bounds) + " bounds, " +
            std::to_string(s.broken_bounds) + " broken, " +
            std::to_string(s.loose_bounds) + " loose";
  }
  if (s.notes_due > 0) {
    line += "   " + std::to_string(s.notes) + " of " +
            std::to_string(s.notes_due) + " notes";
  }
  return line + "\n";
}

}  // namespace

bool Score::perfect() const {
  return std::ranges::all_of(failures_, &Failure::pending);
}

void Score::Fail(const AdviceCase& one, uint64_t seed, std::string what) {
  failures_.push_back({one.name, seed, std::move(what), !one.pending.empty()});
}

void Score::Add(const AdviceCase& one, uint64_t seed, const Trial& trial) {
  for (const std::string& id : RulesIn(trial.report)) {
    RuleScore& score = rules_[id];
    if (Has(one.plant, id)) continue;
    ++score.others;
    const Finding* finding = FindingOf(trial.report, id);
    if (Has(one.note, id)) {
      ++score.notes_due;
      score.notes += finding != nullptr;
      if (finding == nullptr) Fail(one, seed, id + " is not even a note");
    }
    if (Has(one.allow, id) || !Urges(trial.report, id)) continue;
    ++score.elsewhere;
    Fail(one, seed,
         id + " is false: " +
             Text("%.3f of %.3f ms per step; ", finding->gain.expected_ms,
                  trial.now_ms, 0) +
             finding->evidence);
  }
  const double mean = trial.report.steps.mean_ms;
  const double off = std::abs(mean / trial.now_ms - 1);
  ++measured_.others;
  if (!one.sporadic) measured_.errors.push_back(off);
  if (!one.sporadic && off > kMeasuredLimit) {
    Fail(one, seed,
         Text("the step is %.3f ms, not %.3f", trial.now_ms, mean, 0));
  }
  for (size_t i = 0; i < one.plant.size(); ++i) AddPlanted(one, seed, trial, i);
  if (one.plant.size() > 1) AddPlan(one, seed, trial);
}

void Score::AddPlanted(const AdviceCase& one, uint64_t seed, const Trial& trial,
                       size_t index) {
  const std::string& id = one.plant[index];
  RuleScore& score = rules_[id];
  const bool urged = Urges(trial.report, id);
  const double fixed_ms = one.has_fix ? trial.fixed_ms[index] : 0;
  // A fault that costs one to three per cent of the step may be found or not.
  const bool small = one.has_fix && fixed_ms > (1 - kClear) * trial.unfixed_ms;
  if (small && !urged) {
    ++score.others;
    return;
  }
  ++score.planted;
  if (IsMutedBy(trial.report, id, one.allow)) {
    ++score.found;
    ++score.unsized;
    return;
  }
  const Finding* finding = FindingOf(trial.report, id);
  if (!urged) {
    const auto blind =
        std::ranges::find(trial.report.skipped, id, &SkippedRule::id);
    Fail(one, seed,
         id + " is missed: " +
             (finding != nullptr ? "only a note, " + finding->evidence
              : blind != trial.report.skipped.end() ? blind->why
                                                    : "clean") +
             Text("; step %.3f ms, fixed %.3f ms", trial.now_ms, fixed_ms, 0));
    return;
  }
  ++score.found;
  if (one.has_fix) Compare(one, seed, trial, *finding, fixed_ms);
}

void Score::Compare(const AdviceCase& one, uint64_t seed, const Trial& trial,
                    const Finding& finding, double fixed_ms) {
  RuleScore& score = rules_[finding.id];
  const double gain_ms = trial.unfixed_ms - fixed_ms;
  if (finding.gain_kind == GainKind::kBound) {
    CompareBound(one, seed, trial, finding, gain_ms);
  } else if (finding.gain_kind == GainKind::kPredicted) {
    const double predicted = finding.gain.expected_ms;
    score.errors.push_back(ErrorOf(predicted, gain_ms));
    if (IsOff(predicted, gain_ms, kSingleLimit, trial.unfixed_ms)) {
      Fail(one, seed,
           finding.id + Text(" predicts a gain of %.3f, simulated %.3f, now "
                             "%.3f ms",
                             predicted, gain_ms, trial.unfixed_ms));
    }
  } else {
    ++score.unsized;
  }
}

void Score::CompareBound(const AdviceCase& one, uint64_t seed,
                         const Trial& trial, const Finding& finding,
                         double gain_ms) {
  RuleScore& score = rules_[finding.id];
  const double bound = finding.gain.expected_ms;
  const char* wrong = nullptr;
  ++score.bounds;
  if (bound < gain_ms - kNoise * trial.unfixed_ms) {
    ++score.broken_bounds;
    wrong = " promises at most %.3f, simulated %.3f, now %.3f ms";
  } else if (!one.sporadic &&  // the steps of `trial` lack its gain
             bound > kLooseBound * gain_ms + kJitter * trial.unfixed_ms) {
    ++score.loose_bounds;
    wrong = " says at most %.3f for a gain of %.3f, now %.3f ms";
  }
  if (wrong == nullptr) return;
  Fail(one, seed, finding.id + Text(wrong, bound, gain_ms, trial.unfixed_ms));
}

void Score::AddPlan(const AdviceCase& one, uint64_t seed, const Trial& trial) {
  const Plan& plan = trial.report.plan;
  ++plan_.planted;
  if (plan.ids.empty()) {
    Fail(one, seed, "there is no plan");
    return;
  }
  ++plan_.found;
  if (trial.planned_ms <= 0) {
    ++plan_.unsized;
    return;
  }
  const double predicted = plan.step_before_ms - plan.step_after_ms;
  const double gain_ms = trial.unfixed_ms - trial.planned_ms;
  plan_.errors.push_back(ErrorOf(predicted, gain_ms));
  if (IsOff(predicted, gain_ms, kPlanLimit, trial.unfixed_ms)) {
    std::string changes;
    for (const std::string& id : plan.ids) changes += " " + id;
    for (const std::string& change : plan.changes) changes += ", " + change;
    Fail(one, seed,
         "the plan" +
             Text(" predicts a gain of %.3f, simulated %.3f, now %.3f ms:",
                  predicted, gain_ms, trial.unfixed_ms) +
             changes);
  }
}

void Score::Add(const Score& other) {
  const auto merge = [](RuleScore& a, const RuleScore& b) {
    a.planted += b.planted;
    a.found += b.found;
    a.elsewhere += b.elsewhere;
    a.others += b.others;
    a.notes_due += b.notes_due;
    a.notes += b.notes;
    a.errors.insert(a.errors.end(), b.errors.begin(), b.errors.end());
    a.bounds += b.bounds;
    a.broken_bounds += b.broken_bounds;
    a.loose_bounds += b.loose_bounds;
    a.unsized += b.unsized;
  };
  for (const auto& [id, score] : other.rules_) merge(rules_[id], score);
  merge(plan_, other.plan_);
  merge(measured_, other.measured_);
  failures_.insert(failures_.end(), other.failures_.begin(),
                   other.failures_.end());
}

std::string Score::Table() const {
  std::string text =
      "rule                       planted recall  others precis.  sized "
      "median  worst\n";
  for (const auto& [id, score] : rules_) text += Line(id, score);
  text += Line("(step as it is)", measured_);
  if (plan_.planted > 0) text += Line("(plan of several)", plan_);
  return text;
}

}  // namespace stepscope
