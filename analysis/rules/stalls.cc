// Do steps stand still to log or to save the model?
// Sources: PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU
// synchronization"; "Optimization and Performance Tuning with PyTorch", section
// 19.5 (logging and checkpoints). A slow step is one of 1.2 times the median,
// as for warm-up.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "odd_steps.h"
#include "recording_load.h"
#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kLeastNs = 100'000;        // per step
constexpr int64_t kWrittenBytes = 1 << 20;  // that only saving writes

constexpr char kFixCpp[] =
    "copy to pinned memory on a side stream and write from a thread of your "
    "own; log scalars every N steps";
constexpr char kFixPython[] =
    "torch.distributed.checkpoint.async_save, or copy to pinned memory on a "
    "side stream and write from a thread; log scalars every N steps";

// Steps that all save: none of them stands out, so only a range that is named
// for it, and what they write or copy, tell.
std::optional<Finding> SavingInEveryStep(const Measured& m,
                                         const std::vector<StepFacts>& facts,
                                         const UsualStep& usual) {
  std::vector<double> logging;
  size_t saving = 0;
  const StepFacts* longest = nullptr;
  for (size_t i : m.steps.steady) {
    const StepFacts& fact = facts[i];
    logging.push_back(static_cast<double>(fact.logging_ns));
    const bool copies = usual.parameter_bytes > 0 &&
                        2 * fact.to_host_bytes >= usual.parameter_bytes;
    saving +=
        fact.logging_ns > 0 && (fact.written_bytes >= kWrittenBytes || copies);
    if (longest == nullptr || fact.logging_ns > longest->logging_ns) {
      longest = &fact;
    }
  }
  if (longest == nullptr || 3 * saving < 2 * logging.size()) return {};
  double own_ns = Median(std::move(logging));
  if (m.has_gpu) {
    own_ns = std::min(own_ns, std::max(0.0, m.step_ns() - DeviceBusyNs(m)));
  }
  if (own_ns < 0.01 * m.step_ns() || own_ns < kLeastNs) return {};
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "Every step spends " + Milliseconds(own_ns * 1e-6) +
                     " in \"" + longest->logging + "\"";
  if (usual.written_bytes > 0) {
    finding.evidence += " and writes " + Bytes(usual.written_bytes);
  }
  finding.evidence += ", while training stands still.";
  finding.where = longest->logging;
  finding.assumption = "at best: nothing of it is left in the loop";
  finding.wrong_if = "the loop cannot go on without it";
  finding.gain_is = GainKind::kBound;
  finding.gain = {own_ns * 1e-6, 0, own_ns * 1e-6};
  finding.fix_cpp = std::string("save every N steps; or ") + kFixCpp;
  finding.fix_python = std::string("save every N steps; or ") + kFixPython;
  return finding;
}

Verdict CheckCheckpointing(const Measured& m) {
  const std::vector<StepFacts> facts = FactsOf(m.trace, m.tree, m.steps);
  const UsualStep usual = UsualOf(m.trace, m.steps, facts);
  const double median = usual.length_ns;
  if (std::optional<Finding> every = SavingInEveryStep(m, facts, usual)) {
    return Fire(*std::move(every));
  }

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
      per_step < 0.01 * median || per_step < kLeastNs) {
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
  finding.fix_cpp = kFixCpp;
  finding.fix_python = kFixPython;
  finding.wrong_if = "these steps did something else that takes as long";
  finding.gain_is = GainKind::kBound;
  finding.gain = {per_step * 1e-6, 0, per_step * 1e-6};
  finding.of_ms = m.stats.all_mean_ms;
  return Fire(std::move(finding));
}

constexpr Rule kRules[] = {
    {.id = "logging-checkpoint-stall",
     .question = "Do steps stall to log or to save the model?",
     .needs = {},
     .check = &CheckCheckpointing,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "19.5: logging and checkpoints",
     .detect =
         "Steps 1.2 times the median that copy half the parameters or "
         "unusually much to the host, write unusually much, or spend "
         "half of the excess in a range named for it; twice, or once "
         "with the parameters' bytes; 1 % of the step on average. Or every "
         "step writes 1 MiB, or copies half the parameters, in such a "
         "range.",
     .avoid = "Warm-up, garbage collection, a loader that starts again, one "
              "slow step without such a sign.",
     .fix_cpp = "Copy to pinned memory on a side stream, write from a thread.",
     .fix_python = "torch.distributed.checkpoint.async_save; log every N "
                   "steps."}};

}  // namespace

extern const std::span<const Rule> kStalls = kRules;

}  // namespace stepscope
