#include "engine/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/edit_settings.h"
#include "engine/plan_search.h"
#include "engine/ranking.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

// A plan within 5 % of the best step is long enough: more changes are more
// work.
constexpr double kCloseToBest = 1.05;
constexpr size_t kBounds = 3;

}  // namespace

Plan MakePlan(const AnalysisContext& context,
              const std::vector<SizedFinding>& found) {
  Plan plan;
  const Replay& replay = context.replay;
  if (!replay.check().valid) return plan;
  const double before = replay.StepNs({});
  const std::vector<PlannedChange> stages = ChooseChanges(context, found);
  if (stages.empty()) return plan;
  size_t count = 1;
  // The shortest beginning of that list that is close to its end.
  const double best = stages.back().step_ns;
  while (stages[count - 1].step_ns > kCloseToBest * best ||
         stages[count - 1].needs_next) {
    ++count;
  }

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

namespace {

// "After sync-data-loading it gains 29.9 ms."
std::string GainInPlan(const Plan& plan, size_t at, double gain_ms) {
  std::string others = plan.ids[at == 0 ? 1 : 0];
  for (size_t i = 1; i < at; ++i) {
    others += (i + 1 == at ? " and " : ", ") + plan.ids[i];
  }
  return (at == 0 ? " Together with " : " After ") + others + " it gains " +
         Milliseconds(gain_ms) + ".";
}

}  // namespace

void RaisePlanned(const Plan& plan, std::vector<SizedFinding>& found) {
  for (size_t i = 0; i < plan.ids.size() && plan.ids.size() > 1; ++i) {
    const auto one = std::ranges::find_if(found, [&](const SizedFinding& f) {
      return f.finding.id == plan.ids[i] &&
             f.finding.severity == FindingSeverity::kNote;
    });
    if (one == found.end()) continue;
    // The first one gains nothing before the second is made, too.
    const double gain_ms =
        i == 0 ? plan.step_before_ms - plan.after_each_ms[1]
               : plan.after_each_ms[i - 1] - plan.after_each_ms[i];
    one->finding.evidence += GainInPlan(plan, i, gain_ms);
    // Not by that gain: what comes first is more urgent.
    one->finding.severity = FindingSeverity::kLow;
    one->finding.status = FindingStatus::kWarning;
    // Behind the findings: their order is by what each gains by itself.
    const auto first_note = std::find_if(
        found.begin(), one,
        [](const SizedFinding& f) { return RankGroup(f.finding) > 1; });
    std::rotate(first_note, one, one + 1);
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
