// Do steps stall while they log or save the model? Sources: PyTorch Performance
// Tuning Guide, "Avoid unnecessary CPU-GPU synchronization"; "Optimization and
// Performance Tuning with PyTorch", section 19.5 (logging and checkpoints). A
// step is slow if it takes at least 1.2 times the median, the same bound as for
// warm-up.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/recording_load.h"
#include "evidence/stalls/stall_sum.h"
#include "evidence/stalls/state_reads.h"
#include "steps/non_training_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace stalls_rules {
namespace {

constexpr double kLeastNs = 100'000;  // per step
constexpr size_t kStepsForMost = 3;

constexpr char kFixCpp[] =
    "copy to pinned memory on a side stream and write from a separate thread; "
    "log scalars every N steps";
constexpr char kFixOwn[] =
    "do it every N steps only, or on another thread with copies of its inputs";
constexpr char kFixPython[] =
    "torch.distributed.checkpoint.async_save, or copy to pinned memory on a "
    "side stream and write from a separate thread; log scalars every N steps";

constexpr char kFixCppOnCpu[] =
    "copy the tensors, and write the copies from a separate thread; log "
    "scalars every N steps";
constexpr char kFixPythonOnCpu[] =
    "torch.distributed.checkpoint.async_save, or copy the tensors and write "
    "the copies from a separate thread; log scalars every N steps";

const char* FixCpp(const AnalysisContext& m) {
  return m.has_gpu ? kFixCpp : kFixCppOnCpu;
}
const char* FixPython(const AnalysisContext& m) {
  return m.has_gpu ? kFixPython : kFixPythonOnCpu;
}

// True if the step has a range named for saving, and copies half of the
// parameters to the host or writes them. The range's name alone proves nothing.
bool Saves(const StepFacts& fact, const UsualStep& usual) {
  if (fact.logging_ns <= 0 || !fact.saves) return false;
  const bool copies = usual.parameter_bytes > 0 &&
                      2 * fact.saved_to_host_bytes >= usual.parameter_bytes;
  return copies || fact.written_bytes >= kWrittenBytes;
}

// Returns what saving in most steps costs if it takes `own_ns` on the host; 0
// if that is not worth reporting.
double SavedNs(const AnalysisContext& m, double own_ns) {
  if (m.has_gpu) {
    // Host time that the device hides costs the step nothing.
    own_ns = std::min(own_ns, std::max(0.0, m.step_ns() - DeviceBusyNs(m)));
  }
  return own_ns < 0.01 * m.step_ns() || own_ns < kLeastNs ? 0 : own_ns;
}

void SayHowToSave(const AnalysisContext& m, Finding& finding) {
  finding.assumption = "at best: the loop no longer waits for it";
  finding.fix_cpp = std::string("save every N steps; or ") + FixCpp(m);
  finding.fix_python = std::string("save every N steps; or ") + FixPython(m);
}

// Reports saving in most steps, in which case no single step is slower than
// others.
std::optional<Found> SavingInMostSteps(const AnalysisContext& m) {
  std::vector<const StepFacts*> saving;
  for (size_t i : m.steps.steady) {
    if (Saves(m.facts[i], m.usual)) saving.push_back(&m.facts[i]);
  }
  const size_t steps = m.steps.steady.size();
  if (steps < kStepsForMost || 3 * saving.size() < 2 * steps) return {};
  // Use the median, because a single slow write would raise the mean.
  std::ranges::sort(saving, {}, &StepFacts::logging_ns);
  const StepFacts& middle = *saving[saving.size() / 2];
  double own_ns = static_cast<double>(middle.logging_ns) *
                  static_cast<double>(saving.size()) /
                  static_cast<double>(steps);
  own_ns = SavedNs(m, own_ns);
  if (own_ns <= 0) return {};
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
  SayHowToSave(m, finding);
  finding.wrong_if = "the loop cannot continue before it is done";
  return Found{.finding = std::move(finding), .bound_ns = own_ns};
}

// Reports most steps reading all parameters and then running no op. Without a
// range or a stack, this is the only sign of saving.
std::optional<Found> ReadingStateInMostSteps(const AnalysisContext& m) {
  const std::vector<StateRead> reads = FindStateReads(m);
  if (m.steps.steady.size() < kStepsForMost || reads.empty()) return {};
  const StateRead& longest =
      *std::ranges::max_element(reads, {}, &StateRead::own_ns);
  double own_ns = 0;
  for (const StateRead& read : reads) {
    own_ns += read.own_ns / static_cast<double>(m.steps.steady.size());
  }
  own_ns = SavedNs(m, own_ns);
  if (own_ns <= 0) return {};
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence =
      "In most steps the program reads all parameters (" +
      Count(longest.reads, "op") + " in a row) and runs no other op for " +
      Milliseconds(own_ns * 1e-6) +
      " per step, as saving the model does (state_dict(), torch.save).";
  finding.where = m.trace.name(m.trace.ops()[longest.first].name);
  finding.examples = {{m.steps.windows[longest.step].number,
                       longest.span.begin_ns, longest.span.end_ns,
                       "reads of the parameters, and what follows"}};
  SayHowToSave(m, finding);
  finding.wrong_if = "the program computes something of its own there";
  return Found{.finding = std::move(finding), .bound_ns = own_ns};
}

// Returns, for example, "; they copied 40 MB to the host and wrote 40 MB to
// storage".
std::string Traffic(const AnalysisContext& m, const Stalls& stalls) {
  int64_t copied = 0, written = 0;
  bool all_parameters = false;
  for (const Stall& stall : stalls.stalls) {
    if (stall.kind != StallKind::kSaving) continue;
    const StepFacts& fact = m.facts[stall.step];
    copied += fact.to_host_bytes;
    written += fact.written_bytes;
    all_parameters |= SavesModel(fact, m.usual);
  }
  std::string text;
  if (copied > 0 && m.has_gpu) {
    text += "; they copied " + Bytes(static_cast<double>(copied)) +
            " to the host" +
            (all_parameters ? " (the model's parameters)" : "");
  }
  if (written > 0) {
    text +=
        "; they wrote " + Bytes(static_cast<double>(written)) + " to storage";
  }
  return text;
}

// Says what the stalling steps do. Saving may be known by its signs alone.
std::string DoingWhat(const StallSum& sum, bool saves) {
  if (!sum.what.empty()) return ", in \"" + sum.what + "\"";
  if (!sum.after.empty()) {
    return ", and ran no op for most of that, after " + sum.after +
           ", which the other steps do not run there: they write, plot or "
           "compute something outside PyTorch";
  }
  return saves ? ", in which they copy, write or read out what the model holds"
               : "";
}

// Reports single steps that take longer than the others because they save the
// model or do other work of the program.
std::optional<Found> WorkInSomeSteps(const AnalysisContext& m, StallKind kind) {
  const Stalls& stalls = m.stalls;
  const StallSum sum = SumOf(m, kind);
  const bool saves = kind == StallKind::kSaving;
  const bool once =
      saves && std::ranges::any_of(stalls.stalls, [&](const Stall& stall) {
        return SavesModel(m.facts[stall.step], m.usual);
      });
  if (sum.count == 0 || (sum.count < 2 && !once) ||
      sum.lost_ns < 0.01 * stalls.usual_ns || sum.lost_ns < kLeastNs) {
    return {};
  }
  Finding finding;
  finding.confidence = saves ? Confidence::kStrong : Confidence::kHint;
  finding.evidence = StepsInWords(sum, stalls) + " took " +
                     Milliseconds(sum.each_ns * 1e-6) +
                     " longer on average than the median step of " +
                     Milliseconds(stalls.usual_ns * 1e-6) +
                     DoingWhat(sum, saves) + Traffic(m, stalls) + ".";
  finding.examples = sum.examples;
  finding.where = sum.after.empty() ? sum.what : "after " + sum.after;
  finding.assumption =
      "at best: the loop no longer waits for it. The gain is the mean over all "
      "steps; it includes what the following step loses, and the error of a "
      "mean over so few stalls";
  finding.fix_cpp = saves ? FixCpp(m) : kFixOwn;
  finding.fix_python = saves ? FixPython(m) : kFixOwn;
  finding.wrong_if =
      saves ? "these steps did something else that takes as long"
      : sum.after.empty()
          ? "the next step needs its result"
          : "the next step needs its result, or Python's garbage "
            "collector ran there (gc.callbacks shows it)";
  return Found{.finding = std::move(finding),
               .bound_ns = sum.most_ns,
               .baseline_ms = m.gain_step_ms(sum.step_ns * 1e-6)};
}

Verdict CheckCheckpointing(const AnalysisContext& m) {
  std::optional<Found> worst = SavingInMostSteps(m);
  if (!worst) worst = ReadingStateInMostSteps(m);
  for (StallKind kind : {StallKind::kSaving, StallKind::kOwnWork}) {
    std::optional<Found> some = WorkInSomeSteps(m, kind);
    if (some && (!worst || some->bound_ns > worst->bound_ns)) {
      worst = std::move(some);
    }
  }
  return worst ? Fire(*std::move(worst)) : Clean();
}

constexpr Rule kRules[] = {
    {.id = "logging-checkpoint-stall",
     .question = "Do steps stall while they log or save the model?",
     .needs = {},
     .causes = {Cause::kBlockingCopy, Cause::kHostCode, Cause::kSync},
     .check = &CheckCheckpointing,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "19.5: logging and checkpoints",
     .detect =
         "steps that take 1.2 times the median copy half of the parameters, or "
         "unusually much, to the host; or write unusually much; or spend half "
         "of the excess in a range named for logging or saving; or read each "
         "parameter and then run no op for half of the excess. If they spend "
         "half of it in a range or Python function that usual steps do not "
         "have, or run no op for half of it right behind an op that usual "
         "steps do not have, the finding is a hint. This must happen twice "
         "(once is enough "
         "with the parameters' bytes) and cost 1 % of the step on average. Or "
         "two thirds of the steps have a range named for saving, and copy half "
         "of the parameters in it or write 1 MiB in that step; or read each "
         "parameter in a row (aten::detach) and then run no op for 1 % of the "
         "step, which is a hint",
     .avoid = "the step is a warm-up step, garbage collection or a restarted "
              "loader makes it slow, or a single slow step shows no such sign",
     .fix_cpp =
         "copy to pinned memory on a side stream and write from a thread",
     .fix_python =
         "torch.distributed.checkpoint.async_save; log every N steps"}};

}  // namespace
}  // namespace stalls_rules

extern const std::span<const Rule> kStalls = stalls_rules::kRules;

}  // namespace stepscope
