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

// A plan within 5 % of the best step is long enough: more changes are more
// work.
constexpr double kCloseToBest = 1.05;
constexpr size_t kBounds = 3;

// A change must shorten the step by 1 % to be added, as a finding must to be
// more than a note.
constexpr double kWorthAdding = 0.99;
// What is a note by itself must gain what a finding of severity medium does,
// and more than noise: it is news only if it matters.
constexpr double kWorthRaising = 0.03;

bool IsSmall(const SizedFinding& sized) {
  return sized.finding.severity == FindingSeverity::kNote;
}

// One change of a plan, on top of those before it.
struct PlannedChange {
  const SizedFinding* found = nullptr;
  const Edit* variant = nullptr;  // the change itself, one of found->edits
  Edit edit = {};                 // with all changes before it
  double step_ns = 0;             // the step with all of them
};

// Picks greedily: in each round the change that shortens the replayed step most
// on top of those picked before. While the host is late a faster kernel gains
// nothing, and the other way round, so findings too small to report are tried,
// too. Such a note joins only if it then gains 3 % of the step, and more than
// noise.
//
// `found` may be in any order. Findings without edits or without a predicted
// gain, those that only ask for a fact, and notes that are hints are ignored.
// Empty if no change helps. The result points into `found`. `step_ns` is the
// unchanged step, replayed. REQUIRES: context.replay.check().valid.
std::vector<PlannedChange> ChooseChanges(const AnalysisContext& context,
                                         const std::vector<SizedFinding>& found,
                                         double step_ns) {
  std::vector<const SizedFinding*> open;
  for (const SizedFinding& candidate : found) {
    // A small gain of a change that may have another cause is none.
    const bool is_doubtful =
        IsSmall(candidate) && candidate.finding.confidence == Confidence::kHint;
    if (!candidate.edits.empty() && !candidate.asks && !is_doubtful &&
        candidate.finding.gain_kind == GainKind::kPredicted) {
      open.push_back(&candidate);
    }
  }
  const double noise_ns = MinReportableGainMs(context) * 1e6;
  std::vector<PlannedChange> changes;
  Edit edit;  // all changes so far
  // One replay for each open change a round; all subsets would need 2^n.
  while (!open.empty()) {
    const double enough_ns = step_ns * kWorthAdding;
    const double enough_for_notes_ns =
        step_ns - std::max(step_ns * kWorthRaising, noise_ns);
    PlannedChange best{.step_ns = step_ns};
    for (const SizedFinding* candidate : open) {
      const double enough =
          IsSmall(*candidate) ? enough_for_notes_ns : enough_ns;
      for (const Edit& variant : candidate->edits) {
        Edit both = Combine(edit, variant);
        const double ns = context.replay.StepNs(both);
        if (ns < std::min(best.step_ns, enough)) {
          best = {candidate, &variant, std::move(both), ns};
        }
      }
    }
    if (best.found == nullptr) break;
    edit = best.edit;
    step_ns = best.step_ns;
    std::erase(open, best.found);
    changes.push_back(std::move(best));
  }
  return changes;
}

}  // namespace

Plan MakePlan(const AnalysisContext& context,
              const std::vector<SizedFinding>& found) {
  Plan plan;
  const Replay& replay = context.replay;
  if (!replay.check().valid) return plan;
  const double before = replay.StepNs({});
  const std::vector<PlannedChange> stages =
      ChooseChanges(context, found, before);
  if (stages.empty()) return plan;
  size_t count = 1;
  // The shortest beginning of that list that is close to its end.
  const double best = stages.back().step_ns;
  while (stages[count - 1].step_ns > kCloseToBest * best) ++count;

  const Edit& all = stages[count - 1].edit;
  for (size_t i = 0; i < count; ++i) {
    plan.ids.push_back(stages[i].found->finding.id);
  }
  plan.changes = ChangesInWords(all);
  for (size_t i = 0; i < count; ++i) {
    if (!ChangesInWords(*stages[i].variant).empty()) continue;
    std::string words = ChangeOfRule(plan.ids[i]);
    if (std::ranges::count(plan.changes, words) == 0) {
      plan.changes.push_back(std::move(words));
    }
  }
  plan.settings = SettingsOf(all, BatchSize(context.trace));
  // Of all changes at once: single gains do not add up.
  const Gain gain = PredictGain(context, all);
  plan.step_before_ms = before * 1e-6;
  plan.step_after_ms = plan.step_before_ms - gain.expected_ms;
  plan.low_ms = std::max(0.0, plan.step_before_ms - gain.high_ms);
  plan.high_ms = plan.step_before_ms - gain.low_ms;
  plan.pairs = gain.pairs;
  // On the way to what is predicted for all changes: that takes into account
  // how predictions turned out before, and single replays do not.
  const double replayed = before - stages[count - 1].step_ns;
  for (size_t i = 0; i < count; ++i) {
    const double part = (before - stages[i].step_ns) / replayed;
    plan.after_each_ms.push_back(plan.step_before_ms - part * gain.expected_ms);
  }
  return plan;
}

void RaisePlanned(const Plan& plan, std::vector<SizedFinding>& found) {
  // The first change gains by itself, so it is no note.
  for (size_t i = 1; i < plan.ids.size(); ++i) {
    const auto one = std::ranges::find_if(found, [&](const SizedFinding& f) {
      return f.finding.id == plan.ids[i] && IsSmall(f);
    });
    if (one == found.end()) continue;
    const double gain_ms = plan.after_each_ms[i - 1] - plan.after_each_ms[i];
    one->finding.evidence +=
        " After " + ListedWithAnd({plan.ids.begin(), plan.ids.begin() + i}) +
        " it gains " + Milliseconds(gain_ms) + ".";
    // Advice now, but no more severe: by itself it still gains too little.
    one->finding.status = FindingStatus::kWarning;
    // Behind the findings: their order is by what each gains by itself.
    const auto behind =
        std::find_if(found.begin(), one, [](const SizedFinding& f) {
          return RankGroup(f.finding) > 0 && !IsAdvice(f.finding);
        });
    std::rotate(behind, one, one + 1);
  }
}

// A bound cannot be combined with a prediction, so bounds stand in the plan on
// their own, ordered by gain. So do predictions that nothing replayed together:
// those of several ranks.
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
    const bool alone = apart && finding.gain_kind == GainKind::kPredicted &&
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
