// Does the program's own code between ops hold up the step?
#include "evidence/program/own_code.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/missing_rows.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace own_code_rules {
namespace {

// Share of the step, as launch-bound requires for framework code.
constexpr double kShare = 0.10;
constexpr size_t kPlacesShown = 3;
constexpr int64_t kLeastInterruptions = 3;

// Reports pauses that the program's code does not explain, because they occur
// at a different place in each step.
Verdict FireInterruptions(const AnalysisContext& m, const OwnCode& code) {
  if (code.interruptions < kLeastInterruptions ||
      code.interrupted_ns < kShare * m.step_ns()) {
    return Clean();
  }
  Finding finding;
  finding.confidence = Confidence::kHint;
  finding.evidence =
      "The training thread stands still " + Count(code.interruptions, "time") +
      " in " + Count(static_cast<int64_t>(m.steps.steady.size()), "step") +
      ", for " +
      Milliseconds(static_cast<double>(code.longest_interruption.length()) *
                   1e-6) +
      " at most, at places that change from step to step: no op, no loading, "
      "and no call. That takes " +
      Milliseconds(code.interrupted_ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) +
      " step on average. Python's garbage collector pauses a thread like this "
      "when many objects are alive, and so may another process on its core.";
  const size_t step = SteadyStepAt(m.steps, code.longest_interruption.begin_ns,
                                   &StepWindow::tiled);
  if (step != m.steps.windows.size()) {
    finding.examples.push_back(
        {m.steps.windows[step].number, code.longest_interruption.begin_ns,
         code.longest_interruption.end_ns, "the longest of them"});
  }
  finding.assumption = "at best: none of them remains";
  finding.fix_python =
      "gc.freeze() once the model and the data are there, or gc.disable() and "
      "gc.collect() every N steps; see whether gc.callbacks report pauses as "
      "long as these, else what else runs on the cores";
  finding.fix_cpp = "see what else runs on the cores";
  finding.wrong_if = "the program waits there for a lock or the network";
  // These pauses make the steps vary, so the noise of the steps must not hide
  // them.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = code.interrupted_ns,
                    .beyond_noise = true});
}

Verdict CheckPythonBetweenOps(const AnalysisContext& m) {
  // The pauses are part of this cause, so most recordings need no search for
  // them.
  if (m.MeanNs(Cause::kHostCode) < kShare * m.step_ns()) return Clean();
  if (MayLackOps(m.trace)) {
    return Skip("events were lost, and a pause may be where they are missing");
  }
  const OwnCode code = MeasureOwnCode(m, /*with_places=*/true);
  // Pauses in fewer steps are stalls, which other rules report.
  if (code.delay_ns < kShare * m.step_ns() || code.steps_frac < kMostSteps) {
    return FireInterruptions(m, code);
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "The program's own code between ops takes " +
      Milliseconds(code.ns * 1e-6) + " per step, in " +
      Count(std::max<int64_t>(1, std::llround(code.pauses)), "pause") +
      " of more than 50 us";
  finding.evidence +=
      m.has_gpu ? "; the GPU is idle for about " +
                      Milliseconds(code.delay_ns * 1e-6) + " of that (" +
                      Percent(code.delay_ns / m.step_ns()) + " of the step): "
                : " (" + Percent(code.ns / m.step_ns()) + " of the step): ";
  for (size_t i = 0; i < std::min(kPlacesShown, code.places.size()); ++i) {
    const OwnCodePlace& place = code.places[i];
    finding.evidence +=
        (i ? ", " : "") + Milliseconds(place.ns * 1e-6) + " " + place.name;
    const size_t step =
        SteadyStepAt(m.steps, place.longest.begin_ns, &StepWindow::tiled);
    if (step == m.steps.windows.size()) continue;
    finding.examples.push_back({m.steps.windows[step].number,
                                place.longest.begin_ns, place.longest.end_ns,
                                place.name});
  }
  finding.evidence += ".";
  finding.where = code.places.empty() ? "" : code.places.front().name;
  // The report writes "at" before it.
  if (finding.where.starts_with("at ")) finding.where.erase(0, 3);
  const bool infers = OnlyInfers(m);
  finding.assumption = "at best: this code takes no time on this thread";
  if (infers) finding.assumption += std::string("; ") + kSeemsToInfer;
  finding.fix_cpp =
      infers ? "keep what does not change between calls, prepare the next "
               "inputs on another thread, and use tensor ops in place of loops "
               "over elements"
             : "move the preparation of batches to loader workers, use tensor "
               "ops in place of loops over elements, and compute metrics every "
               "N steps";
  // torch.stack() joins samples that the code before it has picked one by one.
  if (!code.places.empty() &&
      code.places.front().name.ends_with(" and aten::stack")) {
    finding.fix_cpp =
        "keep the samples, for example those of a replay buffer, as one tensor "
        "per field, and take a batch by indexing: field[rows] instead of "
        "torch.stack() of tensors from a list; also, " +
        finding.fix_cpp;
  }
  finding.fix_python = finding.fix_cpp;
  if (m.trace.python_frames().empty() && m.trace.stacks().empty()) {
    finding.fix_python +=
        "; record with with_stack=True, and this finding names the lines";
  }
  finding.wrong_if =
      std::string("the thread waits there for something else: ") +
      (infers ? "the next request, " : "") +
      "a lock, the network, or another process on its core";
  return FireBound(std::move(finding), code.delay_ns);
}

constexpr Rule kRules[] = {
    {.id = "python-between-ops",
     .question = "Does the program's own code between ops hold up the step?",
     .needs = {Kind::kOp},
     .causes = {Cause::kHostCode},
     .check = &CheckPythonBetweenOps,
     .reference = "Optimization and Performance Tuning with PyTorch, section "
                  "19.2: find the bottleneck first",
     .detect =
         "in two thirds of the steps, pauses of more than 50 us between "
         "ops of the training thread take 10 % of the step; on a run "
         "with a GPU, only the time in which the GPU is idle counts. As a "
         "hint, also three pauses of 30 ms or more at changing places, "
         "which the collector or another process makes",
     .avoid = "a loader range, the garbage collector or a range named for "
              "saving covers the pauses, or they are shorter, because then the "
              "framework is starting the next op (launch-bound). Not counted "
              "are 0.6 ms at each step mark and at both ends of backward, "
              "which the recorder and the framework may need, and what the "
              "optimizer does in zero_grad, which frees the gradients, and in "
              "step. If events were lost, ops may be missing, and the rule is "
              "skipped",
     .fix_cpp = "tensor ops for loops; in training, loader workers for batches "
                "and metrics every N steps; in inference, keep what does not "
                "change between calls",
     .fix_python = "tensor ops for loops; in training, loader workers for "
                   "batches and metrics every N steps; in inference, keep what "
                   "does not change between calls"}};

}  // namespace
}  // namespace own_code_rules

extern const std::span<const Rule> kOwnCode = own_code_rules::kRules;

}  // namespace stepscope
