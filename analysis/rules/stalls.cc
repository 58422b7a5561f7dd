// Do steps stall while they log or save the model?
// Sources: PyTorch Performance Tuning Guide, "Avoid unnecessary CPU-GPU
// synchronization"; "Optimization and Performance Tuning with PyTorch", section
// 19.5 (logging and checkpoints). A step is slow from 1.2 times the median
// on, the same bound as for warm-up.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/recording_load.h"
#include "steps/non_training_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kLeastNs = 100'000;  // per step
constexpr size_t kStepsForMost = 3;

constexpr char kFixCpp[] =
    "copy to pinned memory on a side stream and write from a separate thread; "
    "log scalars every N steps";
constexpr char kFixPython[] =
    "torch.distributed.checkpoint.async_save, or copy to pinned memory on a "
    "side stream and write from a separate thread; log scalars every N steps";

// True if the step has a range named for saving, and copies half the parameters
// to the host or writes them. A range name alone proves nothing.
bool Saves(const StepFacts& fact, const UsualStep& usual) {
  if (fact.logging_ns <= 0 || !fact.saves) return false;
  const bool copies = usual.parameter_bytes > 0 &&
                      2 * fact.saved_to_host_bytes >= usual.parameter_bytes;
  return copies || fact.written_bytes >= kWrittenBytes;
}

// Saving in most steps, so that no single step is slower than the others.
std::optional<Found> SavingInMostSteps(const AnalysisContext& m,
                                       const std::vector<StepFacts>& facts,
                                       const UsualStep& usual) {
  std::vector<const StepFacts*> saving;
  for (size_t i : m.steps.steady) {
    if (Saves(facts[i], usual)) saving.push_back(&facts[i]);
  }
  const size_t steps = m.steps.steady.size();
  if (steps < kStepsForMost || 3 * saving.size() < 2 * steps) return {};
  std::ranges::sort(saving, {}, &StepFacts::logging_ns);
  const StepFacts& middle = *saving[saving.size() / 2];
  double own_ns = static_cast<double>(middle.logging_ns) *
                  static_cast<double>(saving.size()) /
                  static_cast<double>(steps);
  if (m.has_gpu) {
    own_ns = std::min(own_ns, std::max(0.0, m.step_ns() - DeviceBusyNs(m)));
  }
  if (own_ns < 0.01 * m.step_ns() || own_ns < kLeastNs) return {};
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      std::to_string(saving.size()) + " of " +
      Count(static_cast<int64_t>(steps), "step") + " spend " +
      Milliseconds(static_cast<double>(middle.logging_ns) * 1e-6) + " in \"" +
      middle.logging + "\"";
  if (middle.written_bytes > 0) {
    finding.evidence += ", while the process writes " +
                        Bytes(static_cast<double>(middle.written_bytes));
  }
  finding.evidence += ".";
  finding.where = middle.logging;
  finding.assumption = "at best: the loop no longer waits for it";
  finding.fix_cpp = std::string("save every N steps; or ") + kFixCpp;
  finding.fix_python = std::string("save every N steps; or ") + kFixPython;
  finding.wrong_if = "the loop cannot continue before it is done";
  return Found{.finding = std::move(finding), .bound_ns = own_ns};
}

// Saving in single steps, which take longer than the others.
std::optional<Found> SavingInSomeSteps(const AnalysisContext& m,
                                       const std::vector<StepFacts>& facts,
                                       const UsualStep& usual) {
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
           fact.logging.empty() ? "a step that copies or writes unusually much"
                                : fact.logging});
    }
  }
  const double per_step = stalled / std::max(counted, 1.0);
  if (stalls == 0 || (stalls < 2 && !all_parameters) ||
      per_step < 0.01 * median || per_step < kLeastNs) {
    return {};
  }
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      Count(stalls, "step") + " of " +
      std::to_string(static_cast<int64_t>(counted)) + " took " +
      Milliseconds(stalled * 1e-6 / static_cast<double>(stalls)) +
      " longer on average than the median step of " +
      Milliseconds(median * 1e-6);
  if (copied > 0) {
    finding.evidence += "; they copied " + Bytes(static_cast<double>(copied)) +
                        " to the host" +
                        (all_parameters ? " (the model's parameters)" : "");
  }
  if (written > 0) {
    finding.evidence +=
        "; they wrote " + Bytes(static_cast<double>(written)) + " to storage";
  }
  finding.evidence += ".";
  finding.assumption =
      "at best: the loop no longer waits for it; the gain is the mean over all "
      "recorded steps";
  finding.fix_cpp = kFixCpp;
  finding.fix_python = kFixPython;
  finding.wrong_if = "these steps did something else that takes as long";
  return Found{.finding = std::move(finding),
               .bound_ns = per_step,
               .baseline_ms = m.stats.all_mean_ms};
}

Verdict CheckCheckpointing(const AnalysisContext& m) {
  const std::vector<StepFacts> facts = FactsOf(m.trace, m.tree, m.steps);
  const UsualStep usual = UsualOf(m.trace, m.tree, m.steps, facts);
  std::optional<Found> some = SavingInSomeSteps(m, facts, usual);
  std::optional<Found> most = SavingInMostSteps(m, facts, usual);
  if (!some && !most) return Clean();
  const bool mostly = most && (!some || most->bound_ns > some->bound_ns);
  return Fire(mostly ? *std::move(most) : *std::move(some));
}

constexpr Rule kRules[] = {
    {.id = "logging-checkpoint-stall",
     .question = "Do steps stall while they log or save the model?",
     .needs = {},
     .check = &CheckCheckpointing,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "19.5: logging and checkpoints",
     .detect =
         "steps of 1.2 times the median copy half the parameters or unusually "
         "much to the host, write unusually much, or spend half of the excess "
         "in a range named for logging or saving. This must happen twice, or "
         "once with the parameters' bytes, and cost 1 % of the step on "
         "average. Or two thirds of the steps have a range named for saving, "
         "and copy half the parameters in it or write 1 MiB in that step",
     .avoid = "the step is a warm-up step, garbage collection or a restarted "
              "loader makes it slow, or a single slow step shows no such sign",
     .fix_cpp =
         "copy to pinned memory on a side stream and write from a thread",
     .fix_python =
         "torch.distributed.checkpoint.async_save; log every N steps"}};

}  // namespace

extern const std::span<const Rule> kStalls = kRules;

}  // namespace stepscope
