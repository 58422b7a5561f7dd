#include "engine/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "engine/edit_settings.h"

namespace stepscope {
namespace {

// A plan within 5 % of the best step is long enough: more changes are more
// work.
constexpr double kCloseToBest = 1.05;
// A change must shorten the step by 1 % to be added.
constexpr double kWorthAdding = 0.99;

constexpr size_t kBounds = 3;

// The plan after one more change.
struct Stage {
  const SizedFinding* found = nullptr;
  Edit edit = {};  // all changes up to here
  double step_ns = 0;
};

}  // namespace

Plan MakePlan(const AnalysisContext& context,
              const std::vector<SizedFinding>& found) {
  Plan plan;
  const Replay& replay = context.replay;
  if (!replay.check().valid) return plan;
  std::vector<const SizedFinding*> open;
  for (const SizedFinding& candidate : found) {
    if (!candidate.edits.empty() &&
        candidate.finding.gain_kind == GainKind::kPredicted &&
        candidate.finding.severity != FindingSeverity::kNote) {
      open.push_back(&candidate);
    }
  }

  const double before = replay.StepNs({});
  Edit edit;
  double step = before;
  std::vector<Stage> stages;
  // Greedy: each round takes the change that helps most on top of those taken.
  // Trying all subsets would need 2^n replays.
  while (!open.empty()) {
    Stage best;
    best.step_ns = step * kWorthAdding;
    for (const SizedFinding* candidate : open) {
      for (const Edit& variant : candidate->edits) {
        const Edit both = Combine(edit, variant);
        const double ns = replay.StepNs(both);
        if (ns < best.step_ns) best = {candidate, both, ns};
      }
    }
    if (best.found == nullptr) break;
    edit = best.edit;
    step = best.step_ns;
    stages.push_back(best);
    std::erase(open, best.found);
  }
  if (stages.empty()) return plan;
  size_t count = 1;
  // The shortest beginning of that list that is close to its end.
  while (stages[count - 1].step_ns > kCloseToBest * step) ++count;

  const Edit& all = stages[count - 1].edit;
  for (size_t i = 0; i < count; ++i) {
    plan.ids.push_back(stages[i].found->finding.id);
  }
  plan.changes = ChangesInWords(all, context.steps.windows.size());
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
