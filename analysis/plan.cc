#include "plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "report/words.h"

namespace stepscope {
namespace {

constexpr double kCloseToBest = 1.05;
constexpr double kWorthAdding = 0.99;

// What a plan sets, in words a reader can act on.
std::vector<std::string> InWords(const Edit& edit, size_t steps) {
  std::vector<std::string> words;
  // So many places in all steps, or once.
  const auto per_step = [&](size_t places, const char* one, const char* many) {
    const int64_t count =
        std::llround(static_cast<double>(places) / std::max<size_t>(steps, 1));
    if (places > 0) {
      words.push_back(Count(std::max<int64_t>(count, 1), one, many));
    }
  };
  if (edit.workers >= 0) words.push_back(Count(edit.workers, "loader worker"));
  if (edit.threads > 0) words.push_back(Count(edit.threads, "intra-op thread"));
  if (edit.batch != 1) words.push_back("batch x " + Number(edit.batch));
  if (edit.drop_zero_grad) words.push_back("gradients set to None");
  if (edit.drop_unused_graph) words.push_back("no gradients in validation");
  if (edit.dispatch_ns >= 0) words.push_back("compiled model");
  per_step(edit.no_wait.size(), "wait removed", "waits removed");
  per_step(edit.scales.size(), "device work faster or gone",
           "device works faster or gone");
  per_step(edit.side_stream.size(), "work on a stream of its own",
           "works on a stream of their own");
  per_step(edit.overlapped.size(), "collective overlapped",
           "collectives overlapped");
  per_step(edit.cuts.size(), "stretch of host code cut",
           "stretches of host code cut");
  return words;
}

struct Stage {
  const Found* found = nullptr;
  Edit edit = {};  // all changes up to here
  double step_ns = 0;
};

}  // namespace

Plan MakePlan(const Measured& measured, const std::vector<Found>& found) {
  Plan plan;
  const Replay& replay = measured.replay;
  if (!replay.check().speaks) return plan;
  std::vector<const Found*> open;
  for (const Found& candidate : found) {
    if (!candidate.edits.empty() &&
        candidate.finding.gain_is == GainKind::kPredicted &&
        candidate.finding.severity != FindingSeverity::kNote) {
      open.push_back(&candidate);
    }
  }

  const double before = replay.StepNs({});
  Edit edit;
  double step = before;
  std::vector<Stage> stages;
  while (!open.empty()) {
    Stage best;
    best.step_ns = step * kWorthAdding;
    for (const Found* candidate : open) {
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
  while (stages[count - 1].step_ns > kCloseToBest * step) ++count;

  const Edit& all = stages[count - 1].edit;
  for (size_t i = 0; i < count; ++i) {
    plan.ids.push_back(stages[i].found->finding.id);
  }
  plan.changes = InWords(all, measured.steps.windows.size());
  const Gain gain = PredictGain(measured, all);
  plan.step_before_ms = before * 1e-6;
  plan.step_after_ms = plan.step_before_ms - gain.expected_ms;
  plan.low_ms = std::max(0.0, plan.step_before_ms - gain.high_ms);
  plan.high_ms = plan.step_before_ms - gain.low_ms;
  return plan;
}

}  // namespace stepscope
