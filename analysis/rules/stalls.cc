// Do single steps stand still to log or to save the model?
// Sources: PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU
// synchronization"; "Optimization and Performance Tuning with PyTorch", section
// 19.5 (logging and checkpoints). A slow step is one of 1.2 times the median,
// as for warm-up.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "odd_steps.h"
#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

Verdict CheckCheckpointing(const Measured& m) {
  const std::vector<StepFacts> facts = FactsOf(m.trace, m.tree, m.steps);
  const UsualStep usual = UsualOf(m.trace, m.steps, facts);
  const double median = usual.length_ns;

  Finding finding;
  double stalled = 0, counted = 0;
  int64_t copied = 0, written = 0, stalls = 0;
  bool all_parameters = false;
  for (size_t i = 0; i < facts.size(); ++i) {
    const StepWindow& step = m.steps.windows[i];
    if (step.kind == StepKind::kWarmUp) continue;
    ++counted;
    const StepFacts& fact = facts[i];
    if (!IsCheckpoint(fact, usual)) continue;
    ++stalls;
    stalled += static_cast<double>(step.tiled.length()) - median;
    copied += fact.to_host_bytes;
    written += fact.written_bytes;
    all_parameters |= SavesModel(fact, usual);
    if (finding.where.empty()) finding.where = fact.logging;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {step.number, step.tiled.begin_ns, step.tiled.end_ns,
           fact.logging.empty() ? "a step that copies or writes much"
                                : fact.logging});
    }
  }
  const double per_step = stalled / std::max(counted, 1.0);
  if (stalls == 0 || (stalls < 2 && !all_parameters) ||
      per_step < 0.01 * median || per_step * 1e-6 < 0.1) {
    return Clean();
  }
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Count(stalls, "step") + " of " +
      std::to_string(static_cast<int64_t>(counted)) + " took " +
      Milliseconds(stalled * 1e-6 / static_cast<double>(stalls)) +
      " longer than the usual " + Milliseconds(median * 1e-6);
  if (copied > 0) {
    finding.evidence += ", copied " + Bytes(static_cast<double>(copied)) +
                        " to the host" +
                        (all_parameters ? " (the model's parameters)" : "");
  }
  if (written > 0) {
    finding.evidence +=
        ", wrote " + Bytes(static_cast<double>(written)) + " to storage";
  }
  finding.evidence += ".";
  finding.assumption =
      "at best: spread over all recorded steps, nothing of it "
      "is left in the loop";
  finding.fix_cpp =
      "copy to pinned memory on a side stream and write from a thread of your "
      "own; log scalars every N steps";
  finding.fix_python =
      "torch.distributed.checkpoint.async_save, or copy to pinned memory on a "
      "side stream and write from a thread; log scalars every N steps";
  finding.wrong_if = "these steps did something else that takes as long";
  finding.gain_is = GainKind::kBound;
  finding.gain = {per_step * 1e-6, 0, per_step * 1e-6};
  finding.of_ms = m.stats.all_mean_ms;
  return Fire(std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "logging-checkpoint-stall",
     .question = "Do single steps stall to log or to save the model?",
     .needs = {},
     .check = &CheckCheckpointing,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "19.5: logging and checkpoints",
     .detect = "Steps 1.2 times the median that copy half the parameters or "
               "unusually much to the host, write unusually much, or spend "
               "half of the excess in a range named for it; twice, or once "
               "with the parameters' bytes; 1 % of the step on average.",
     .avoid = "Warm-up, garbage collection, a loader that starts again, one "
              "slow step without such a sign.",
     .fix_cpp = "Copy to pinned memory on a side stream, write from a thread.",
     .fix_python = "torch.distributed.checkpoint.async_save; log every N "
                   "steps."}};

}  // namespace

extern const std::span<const Rule> kStalls = kRules;

}  // namespace stepscope
