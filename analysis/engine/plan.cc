#include "engine/plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "context/noise.h"
#include "edit/edit.h"
#include "engine/edit_settings.h"
#include "engine/ranking.h"
#include "replay/replay.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A plan whose step is within 5 % of the best one is long enough, because more
// changes are more work.
constexpr double kCloseToBest = 1.05;
constexpr size_t kBounds = 3;

// A change must shorten the step by at least 1 % to be added. A finding must
// gain as much to be more than a note.
constexpr double kWorthAdding = 0.99;
// A finding that is only a note by itself must gain 3 % of the step after the
// other changes (as for severity medium), and more than noise.
constexpr double kWorthRaising = 0.03;

bool IsSmall(const SizedFinding& sized) {
  return sized.finding.severity == FindingSeverity::kNote;
}

// True if the gain counts after a change of which only a bound is known. Replay
// would count the gain without that change.
bool IsAfterBound(const SizedFinding& sized,
                  const std::vector<SizedFinding>& found) {
  return std::ranges::any_of(found, [&](const SizedFinding& one) {
    return one.finding.id == sized.after &&
           one.finding.gain_kind != GainKind::kPredicted;
  });
}

// One change of a plan, in one of the variants that its finding proposes.
struct PlannedChange {
  const SizedFinding* found = nullptr;
  const Edit* variant = nullptr;  // one of found->edits

  // What the finding prints.
  const Edit& printed() const { return found->edits.front(); }
};
using PlannedChanges = std::vector<PlannedChange>;

Edit AllOf(const PlannedChanges& changes, size_t count) {
  Edit all;
  for (size_t i = 0; i < count; ++i) {
    all = Combine(std::move(all), *changes[i].variant);
  }
  return all;
}
Edit AllOf(const PlannedChanges& changes) {
  return AllOf(changes, changes.size());
}

// Returns the step in ns after the first change, the first two, and so on.
std::vector<double> StepsAfterEach(const Replay& replay,
                                   const PlannedChanges& changes) {
  std::vector<double> steps;
  Edit all;
  for (const PlannedChange& change : changes) {
    all = Combine(std::move(all), *change.variant);
    steps.push_back(replay.StepNs(all));
  }
  return steps;
}

// Picks changes greedily: in each round, the change that shortens the replayed
// step most on top of those picked before. A change may gain only after others:
// while the host is late, a faster kernel gains nothing, and the other way
// round. So findings too small to report are tried, too. Such a note joins only
// if it then gains at least 3 % of the step, and more than noise.
//
// The plan takes the variant of a change that the finding prints, unless
// another one makes the step 1 % shorter. That happens after other changes: one
// loader worker may be enough for the recorded step, but not for a shorter one.
//
// Changes that are listed later (ComesLater) are tried last, too.
//
// Findings without edits or without a predicted gain, those that only ask for a
// fact, those that gain after a change that cannot be replayed, and notes that
// are hints are ignored. REQUIRES: replay is valid.
class PlanSearch {
 public:
  // `step_ns`: the unchanged step, replayed.
  PlanSearch(const AnalysisContext& context,
             const std::vector<SizedFinding>& found, double step_ns)
      : replay_(context.replay),
        noise_ns_(MinReportableGainMs(context) * 1e6),
        step_ns_(step_ns) {
    for (const SizedFinding& candidate : found) {
      // A small gain does not count if the rule is not even sure of its cause.
      const bool is_doubtful =
          IsSmall(candidate) &&
          candidate.finding.confidence == Confidence::kHint;
      if (!candidate.edits.empty() && !candidate.asks && !is_doubtful &&
          !IsAfterBound(candidate, found) &&
          candidate.finding.gain_kind == GainKind::kPredicted) {
        (ComesLater(candidate) ? later_ : open_).push_back(&candidate);
      }
    }
  }

  // The shortest list that comes close to the best step found; empty if no
  // change helps. It points into `found`.
  PlannedChanges Run() {
    // Replays each open variant once per round. Trying all subsets of the n
    // changes would need 2^n replays.
    while (AddBest()) {
    }
    open_.insert(open_.end(), later_.begin(), later_.end());
    while (AddBest()) {
    }
    if (changes_.empty()) return {};
    const std::vector<double> steps = StepsAfterEach(replay_, changes_);
    size_t count = 1;
    while (steps[count - 1] > kCloseToBest * step_ns_) ++count;
    if (count < changes_.size()) {
      changes_.resize(count);
      ChooseVariants();
    }
    return std::move(changes_);
  }

 private:
  // How short the step must become for `candidate` to be added.
  double Enough(const SizedFinding& candidate) const {
    return IsSmall(candidate)
               ? step_ns_ - std::max(step_ns_ * kWorthRaising, noise_ns_)
               : step_ns_ * kWorthAdding;
  }

  // Returns the first variant of `found` whose step is at most 1 % longer than
  // with the best variant, and that step. Replays each variant combined with
  // `before` and `after`, the other changes. Skips further variants without a
  // name, because a reader could not distinguish them from the printed one.
  std::pair<const Edit*, double> BestVariant(const SizedFinding& found,
                                             const Edit& before,
                                             const Edit& after) const {
    std::vector<std::pair<const Edit*, double>> tried;
    double best_ns = 0;
    for (const Edit& variant : found.edits) {
      if (!tried.empty() && ChangesInWords(variant).empty()) continue;
      const double ns =
          replay_.StepNs(Combine(Combine(before, variant), after));
      best_ns = tried.empty() ? ns : std::min(best_ns, ns);
      tried.push_back({&variant, ns});
    }
    return *std::ranges::find_if(tried, [&](const auto& one) {
      return one.second * kWorthAdding <= best_ns;
    });
  }

  bool AddBest() {
    const Edit before = AllOf(changes_);
    PlannedChange best;
    double best_ns = step_ns_;
    for (const SizedFinding* candidate : open_) {
      const auto [variant, ns] = BestVariant(*candidate, before, {});
      if (ns >= std::min(best_ns, Enough(*candidate))) continue;
      best = {candidate, variant};
      best_ns = ns;
    }
    if (best.found == nullptr) return false;
    std::erase(open_, best.found);
    changes_.push_back(best);
    step_ns_ = best_ns;
    ChooseVariants();
    return true;
  }

  // Chooses again among the variants of each change, given the other changes.
  void ChooseVariants() {
    bool chosen = false;
    for (size_t i = 0; i < changes_.size(); ++i) {
      if (changes_[i].found->edits.size() < 2) continue;
      Edit after;
      for (size_t k = i + 1; k < changes_.size(); ++k) {
        after = Combine(std::move(after), *changes_[k].variant);
      }
      const Edit* best =
          BestVariant(*changes_[i].found, AllOf(changes_, i), after).first;
      chosen |= best != changes_[i].variant;
      changes_[i].variant = best;
    }
    if (chosen) step_ns_ = replay_.StepNs(AllOf(changes_));
  }

  const Replay& replay_;
  const double noise_ns_;
  std::vector<const SizedFinding*> open_;
  std::vector<const SizedFinding*> later_;  // tried when no other change helps
  PlannedChanges changes_;
  double step_ns_;  // with changes_
};

// If the step becomes shorter than this share, the plan relies on batches that
// arrive faster than recorded.
constexpr double kReliesOnLoader = 0.9;

// What the predicted step assumes; empty if that is not worth saying.
std::string Assumption(const AnalysisContext& context, const Plan& plan,
                       const Edit& all) {
  const Replay& replay = context.replay;
  const LoaderRate& rate = replay.device() != nullptr ? replay.device()->rate
                                                      : replay.program().rate;
  if (!rate.unknown || all.workers >= 0 ||
      plan.step_after_ms > kReliesOnLoader * plan.step_before_ms) {
    return "";
  }
  return "the loader's workers deliver the batches of a step every " +
         Milliseconds(plan.step_after_ms) +
         "; how fast they can be was not recorded";
}

// Returns the words for the changes, in the order of the changes. `all` has the
// words for the changes combined: fewer, if two changes set the same field.
std::vector<std::string> InOrder(const PlannedChanges& changes,
                                 const std::vector<std::string>& all) {
  std::vector<std::string> order;
  const auto add = [&](const std::string& words) {
    if (std::ranges::count(order, words) == 0) order.push_back(words);
  };
  for (const PlannedChange& change : changes) {
    const std::vector<std::string> own = ChangesInWords(*change.variant);
    if (own.empty()) add(ChangeOfRule(change.found->finding.id));
    for (const std::string& words : own) {
      if (std::ranges::count(all, words) > 0) add(words);
    }
  }
  std::ranges::for_each(all, add);
  return order;
}

// Says in the evidence of a finding that the plan takes another variant than
// the finding prints, and why.
void TellVariant(const Replay& replay, const PlannedChanges& changes,
                 size_t index, SizedFinding& found) {
  const PlannedChange& change = changes[index];
  const std::vector<std::string> printed = ChangesInWords(change.printed());
  const std::vector<std::string> taken = ChangesInWords(*change.variant);
  if (taken == printed || changes.size() < 2) return;
  PlannedChanges as_printed = changes;
  as_printed[index].variant = &change.printed();
  std::vector<std::string> others;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (i != index) others.push_back(changes[i].found->finding.id);
  }
  found.finding.evidence +=
      " The plan takes " + ListedWithAnd(taken) + ": together with " +
      ListedWithAnd(others) + ", " + ListedWithAnd(printed) +
      " would leave the step at " +
      Milliseconds(replay.StepNs(AllOf(as_printed)) * 1e-6) + " instead of " +
      Milliseconds(replay.StepNs(AllOf(changes)) * 1e-6) + ".";
}

}  // namespace

Plan MakePlan(const AnalysisContext& context,
              std::vector<SizedFinding>& found) {
  Plan plan;
  const Replay& replay = context.replay;
  if (!replay.check().valid) return plan;
  const double before = replay.StepNs({});
  const PlannedChanges changes = PlanSearch(context, found, before).Run();
  if (changes.empty()) return plan;
  const Edit all = AllOf(changes);
  for (const PlannedChange& change : changes) {
    plan.ids.push_back(change.found->finding.id);
  }
  plan.changes = InOrder(changes, ChangesInWords(all));
  plan.settings = SettingsOf(all, BatchSize(context.trace));
  // Predicts all changes at once, because single gains do not add up.
  Gain gain = PredictGain(context, all);
  if (changes.size() == 1 && changes[0].variant == &changes[0].printed()) {
    // What the rule knows of its gain holds for the plan only if its change is
    // the only one.
    const Finding& only = changes[0].found->finding;
    if (only.baseline_ms <= 0 && only.gain.expected_ms > 0) gain = only.gain;
  }
  // Gains refer to the step as it was; the replayed one may be off by 3 %.
  plan.step_before_ms = context.gain_step_ms();
  plan.step_after_ms = plan.step_before_ms - gain.expected_ms;
  plan.low_ms = std::max(0.0, plan.step_before_ms - gain.high_ms);
  plan.high_ms = plan.step_before_ms - gain.low_ms;
  plan.pairs = gain.pairs;
  plan.assumption = Assumption(context, plan, all);
  // Each replayed step is scaled so that the last one is step_after_ms. (That
  // is not the plain result of replay if known outcomes correct it.)
  const std::vector<double> steps = StepsAfterEach(replay, changes);
  const double replayed = before - steps.back();
  for (double step : steps) {
    const double part = (before - step) / replayed;
    plan.after_each_ms.push_back(plan.step_before_ms - part * gain.expected_ms);
  }
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto at = static_cast<size_t>(changes[i].found - found.data());
    TellVariant(replay, changes, i, found[at]);
  }
  return plan;
}

void RaisePlanned(const Plan& plan, std::vector<SizedFinding>& found) {
  // The first change gains by itself, so it is never a note.
  for (size_t i = 1; i < plan.ids.size(); ++i) {
    const auto one = std::ranges::find_if(found, [&](const SizedFinding& f) {
      return f.finding.id == plan.ids[i] && IsSmall(f);
    });
    if (one == found.end()) continue;
    const double gain_ms = plan.after_each_ms[i - 1] - plan.after_each_ms[i];
    one->finding.evidence +=
        " After " + ListedWithAnd({plan.ids.begin(), plan.ids.begin() + i}) +
        " it gains " + Milliseconds(gain_ms) + ".";
    // Makes the note advice, but with the same severity, because its own gain
    // is still too small.
    one->finding.status = FindingStatus::kWarning;
    // Moves it behind the findings, which are sorted by their own gains.
    const auto behind =
        std::find_if(found.begin(), one, [](const SizedFinding& f) {
          return RankGroup(f.finding) > 0 && !IsAdvice(f.finding);
        });
    std::rotate(behind, one, one + 1);
  }
}

// A bound cannot be combined with a prediction, so bounds are separate entries
// of the plan, ordered by gain. So are predictions that were not replayed
// together, as in the report of several ranks: the gain of a slow rank is from
// the replay of all ranks, and that of a plan from the replay of one.
void OrderPlan(Report& report) {
  Plan& plan = report.plan;
  plan.at_most.clear();
  plan.order.clear();
  const bool apart = plan.ids.empty();
  size_t predicted = 0;
  for (const Finding& finding : report.findings) {
    const bool bound = finding.gain_kind == GainKind::kBound &&
                       finding.status != FindingStatus::kOk &&
                       finding.severity >= FindingSeverity::kMedium &&
                       plan.at_most.size() < kBounds;
    if (bound) plan.at_most.push_back(finding.id);
    const bool alone = (apart || finding.id == "straggler-rank") &&
                       finding.gain_kind == GainKind::kPredicted &&
                       finding.status != FindingStatus::kOk &&
                       finding.severity >= FindingSeverity::kMedium &&
                       predicted < kBounds;
    if (alone) ++predicted;
    if (bound || alone || std::ranges::count(plan.ids, finding.id) > 0) {
      plan.order.push_back(finding.id);
    }
  }
}

}  // namespace stepscope
