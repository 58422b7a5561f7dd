// Does work between the optimizer's step and the next forward pass hold up the
// step?
// Sources: the documentation of torch.optim.swa_utils (averages of weights with
// get_ema_multi_avg_fn, which updates all parameters in one call);
// "Optimization and Performance Tuning with PyTorch", section 19.5 (log every N
// steps).
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/host_spans.h"
#include "evidence/program/work_between_steps.h"
#include "evidence/recording_load.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace between_steps_rules {
namespace {

// Share of the step, as launch-bound requires for framework code.
constexpr double kShare = 0.10;
// The same for work on all weights on a run with a GPU: what it is leaves
// little doubt, and replay says what it costs.
constexpr double kShareOfWeights = 0.05;
// The longest pause between two ops of one loop over the weights.
// load_state_dict() pauses for some 20 to 100 us at each weight, and longer at
// the first and the last. Longer pauses have other reasons.
constexpr int64_t kLongestLoopPauseNs = 500'000;

// The cost of ops of one kind.
struct Part {
  std::vector<OpBetweenSteps> ops = {};
  double ns = 0;         // per steady step, on the host
  double saved = 1;      // the share of `ns` that the change saves
  double around_ns = 0;  // AroundNs(), which the change saves completely
};

// Returns the number of ops, including inner ones, that the training thread
// runs in the spans of `ops`, per steady step.
double EventsIn(const AnalysisContext& m,
                const std::vector<OpBetweenSteps>& ops) {
  double events = 0;
  for (const OpBetweenSteps& one : ops) {
    events +=
        static_cast<double>(m.tree.of_thread(m.steps.thread, one.span).size());
  }
  return events / static_cast<double>(m.steps.steady.size());
}

// Returns the time of a loop over the weights outside its ops on them, in ns
// per steady step: the loop's own code, and views of the weights, as
// state_dict() makes them.
double AroundNs(const AnalysisContext& m, const WorkBetweenSteps& work) {
  const auto of_loop = [](const OpBetweenSteps& one) {
    return one.kind == BetweenSteps::kWeights ||
           one.kind == BetweenSteps::kCopies || one.views_weights;
  };
  double ns = 0;
  for (size_t i = 0; i < work.ops.size(); ++i) {
    const OpBetweenSteps& one = work.ops[i];
    if (!of_loop(one)) continue;
    if (one.views_weights) ns += static_cast<double>(one.span.length());
    if (i == 0 || work.ops[i - 1].step != one.step || !of_loop(work.ops[i - 1]))
      continue;
    const int64_t pause = one.span.begin_ns - work.ops[i - 1].span.end_ns;
    if (pause > 0 && pause <= kLongestLoopPauseNs) {
      ns += static_cast<double>(pause);
    }
  }
  return ns / static_cast<double>(m.steps.steady.size());
}

bool InMostSteps(const WorkBetweenSteps& work,
                 const std::vector<OpBetweenSteps>& ops) {
  std::set<size_t> steps;
  for (const OpBetweenSteps& one : ops) steps.insert(one.step);
  // If the work is in fewer of the steps with an optimizer step, it makes these
  // slower than the others, and logging-checkpoint-stall reports them.
  return static_cast<double>(steps.size()) >= kMostSteps * work.updated_steps;
}

std::vector<RowId> RowsOf(const std::vector<OpBetweenSteps>& ops) {
  std::vector<RowId> rows;
  rows.reserve(ops.size());
  for (const OpBetweenSteps& one : ops) rows.push_back(one.row);
  return rows;
}

// A run with a GPU without the ops of a part.
struct Removed {
  Edit edit;
  double device_ns = 0;  // of their work, per step
};

// Waits for the device remain, because host-sync reports them.
Removed WithoutOps(const AnalysisContext& m, const Part& part) {
  std::vector<Span> waits;
  for (const HostWait& wait : m.waits.all) {
    if (wait.thread == m.steps.thread) waits.push_back(wait.span);
  }
  waits = Merge(std::move(waits));
  std::vector<HostSpan> spans;
  for (const OpBetweenSteps& one : part.ops) {
    for (const Span& span : Subtract(std::vector<Span>{one.span}, waits)) {
      spans.push_back({m.steps.thread, span});
    }
  }
  const std::vector<ActivityRef> activities = LaunchedIn(m, spans);
  Removed removed{.edit = Without(spans, activities),
                  .device_ns = DeviceNsPerStep(m, activities)};
  for (ActivityScale& scale : removed.edit.scales)
    scale.factor = 1 - part.saved;
  return removed;
}

void SayFix(BetweenSteps kind, Finding& finding) {
  switch (kind) {
    case BetweenSteps::kStatistics:
      finding.fix_cpp =
          "compute them every N steps; what is needed more often, add up in a "
          "tensor, and read it every N steps";
      finding.fix_python = finding.fix_cpp;
      finding.wrong_if = "the next step needs these values";
      return;
    case BetweenSteps::kWeights:
      finding.fix_cpp =
          "update the tensors in place and together: "
          "at::_foreach_lerp_(average, "
          "parameters, 1 - decay), at::_foreach_mul_ or at::_foreach_copy_, "
          "under torch::NoGradGuard; or do it every N steps";
      finding.fix_python =
          "update the tensors in place and together: "
          "torch._foreach_lerp_(average, parameters, 1 - decay), "
          "torch._foreach_mul_ or torch._foreach_copy_, under torch.no_grad(); "
          "for an average of the weights, torch.optim.swa_utils.AveragedModel("
          "model, multi_avg_fn=get_ema_multi_avg_fn(decay)); or do it every N "
          "steps";
      finding.wrong_if = "later ops need the old values of these tensors";
      return;
    case BetweenSteps::kCopies:
      finding.fix_cpp =
          "copy every N steps, into tensors that are kept: "
          "at::_foreach_copy_(copies, parameters) under torch::NoGradGuard; to "
          "guard against NaN, look at the loss before the optimizer's step";
      finding.fix_python =
          "copy every N steps, into tensors that are kept: "
          "torch._foreach_copy_(copies, parameters) under torch.no_grad(), in "
          "place of copy.deepcopy(model.state_dict()); to guard against NaN, "
          "look at the loss before optimizer.step()";
      finding.wrong_if = "each step needs a copy of the step before";
      return;
    case BetweenSteps::kOther:
      finding.fix_cpp =
          "if the next step does not need the results, do it every N steps or "
          "on another thread; data belongs into the loader's workers";
      finding.fix_python = finding.fix_cpp;
      finding.wrong_if = "the next step needs the results";
      return;
  }
}

std::string InWords(BetweenSteps kind, bool has_sizes) {
  switch (kind) {
    case BetweenSteps::kStatistics:
      return "ops that compute statistics take ";
    case BetweenSteps::kWeights:
      return has_sizes ? "ops on single tensors of the parameters' sizes take "
                       : "ops on one tensor at a time, as often as there are "
                         "parameters, take ";
    case BetweenSteps::kCopies:
      return "copies of storages as large as the parameters' take ";
    case BetweenSteps::kOther:
      return "ops take ";
  }
  return "";
}

std::string Assumption(BetweenSteps kind, bool has_gpu) {
  if (kind == BetweenSteps::kStatistics) {
    return "at best: hardly any step computes them";
  }
  if (kind == BetweenSteps::kCopies) {
    return "at best: hardly any step copies them, and the loop around takes no "
           "time";
  }
  if (kind == BetweenSteps::kOther)
    return "at best: no step has to wait for it";
  return has_gpu
             ? "each parameter is updated in one pass in place, which takes "
               "time in proportion to the bytes it moves"
             : "at best: each parameter is updated in one pass in place, at "
               "the memory rate of most of these ops, and the loop around them "
               "takes no time";
}

double LeastShare(const AnalysisContext& m, BetweenSteps kind) {
  const bool of_weights =
      kind == BetweenSteps::kWeights || kind == BetweenSteps::kCopies;
  return m.has_gpu && of_weights ? kShareOfWeights : kShare;
}

Found Describe(const AnalysisContext& m, BetweenSteps kind, const Part& part,
               Removed removed) {
  const double step = m.step_ns();
  Finding finding;
  finding.confidence =
      kind == BetweenSteps::kOther ? Confidence::kHint : Confidence::kStrong;
  finding.evidence =
      "After the optimizer's step and before the next forward "
      "pass, " +
      InWords(kind, m.trace.watched(Kind::kOpShapes)) +
      Milliseconds(part.ns * 1e-6) + " of the " + Milliseconds(step * 1e-6) +
      " step (" + Percent(part.ns / step) +
      ") on the host: " + LongestOps(m, RowsOf(part.ops)) + " per step.";
  const OpBetweenSteps& longest = *std::ranges::max_element(
      part.ops, {},
      [](const OpBetweenSteps& one) { return one.span.length(); });
  finding.examples.push_back(
      {m.steps.windows[longest.step].number, longest.span.begin_ns,
       longest.span.end_ns,
       std::string(m.trace.name(m.trace.ops()[longest.row].name))});
  finding.where = CallSites(m.trace).Place(
      m.steps.thread, m.trace.ops()[longest.row].begin_ns, longest.row);
  finding.assumption = Assumption(kind, m.has_gpu);
  SayFix(kind, finding);
  Found found{.finding = std::move(finding)};
  if (kind == BetweenSteps::kOther) found.at_most = FindingSeverity::kLow;
  if (!m.has_gpu) {
    found.bound_ns = LargestUnrecordedNs(
        m, part.saved * part.ns + part.around_ns, EventsIn(m, part.ops));
    return found;
  }
  found.alternatives = {{std::move(removed.edit)}};
  found.finding.evidence += " On the GPU their work takes " +
                            Milliseconds(removed.device_ns * 1e-6) +
                            " per step.";
  // Saved host time counts at most as much as the device waits for the host.
  found.bound_ns = part.saved * removed.device_ns +
                   std::min(part.ns, m.MeanNs(Cause::kDispatch) +
                                         m.MeanNs(Cause::kHostCode));
  // If the device hides the work, the replay predicts no gain, and the finding
  // is dropped.
  found.choice = Choice::kLadder;
  found.worth = LeastShare(m, kind);
  return found;
}

Verdict CheckWorkBetweenSteps(const AnalysisContext& m) {
  if (m.parts.optimizer.spans.empty()) return Clean();  // nothing is trained
  if (m.parts.optimizer.inferred) {
    return Skip("nothing marks where the optimizer's step ends");
  }
  WorkBetweenSteps work = FindWorkBetweenSteps(m);
  const auto steps = static_cast<double>(m.steps.steady.size());
  std::map<BetweenSteps, Part> parts;
  for (const OpBetweenSteps& one : work.ops) {
    Part& part = parts[one.kind];
    part.ns += static_cast<double>(one.span.length()) / steps;
    part.ops.push_back(one);
  }
  if (const auto weights = parts.find(BetweenSteps::kWeights);
      weights != parts.end()) {
    weights->second.saved = 1 - LeftInOnePass(m, weights->second.ops);
    weights->second.around_ns = AroundNs(m, work);
  } else if (const auto copies = parts.find(BetweenSteps::kCopies);
             copies != parts.end()) {
    copies->second.around_ns = AroundNs(m, work);
  }
  Verdict verdict;
  for (auto& [kind, part] : parts) {
    const bool says_little = kind == BetweenSteps::kOther;
    const double least_ns = LeastShare(m, kind) * m.step_ns();
    if ((says_little && !verdict.found.empty()) ||
        !InMostSteps(work, part.ops)) {
      continue;
    }
    Removed removed;
    if (m.has_gpu) removed = WithoutOps(m, part);
    // Of other work, only what the host does is known to be in the way.
    const double device_ns = says_little ? 0 : removed.device_ns;
    if (std::max(part.ns, device_ns) < least_ns) continue;
    Found found = Describe(m, kind, part, std::move(removed));
    if (found.bound_ns >= least_ns) {
      verdict.found.push_back(std::move(found));
    }
  }
  return verdict;
}

constexpr Rule kRules[] = {
    {.id = "work-between-steps",
     .question = "Does work between the optimizer's step and the next forward "
                 "pass hold up the step?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kHostCode},
     .check = &CheckWorkBetweenSteps,
     .reference = "PyTorch documentation, torch.optim: weight averaging: "
                  "https://docs.pytorch.org/docs/stable/optim.html",
     .detect =
         "in two thirds of the steps in which the optimizer steps, ops that "
         "follow it take time of which the change saves 10 % of the step (on a "
         "run with a GPU: the replayed step is 10 % shorter without them, or 5 "
         "% without those on weights). "
         "They compute statistics (histograms, norms, extremes), of weights or "
         "with values that are read, or work on tensors of the parameters' "
         "sizes, one by one, such as an average of the weights (without sizes: "
         "update tensors in place as often as there are parameters); of the "
         "latter, an update in one pass remains. Other ops are a hint, at most "
         "low",
     .avoid =
         "the ops belong to loading, validation, saving, collectives, "
         "zeroing of gradients or scaling of the loss, which other rules "
         "judge; they are foreach updates in place; or no range marks the "
         "optimizer's step, as with LibTorch's optimizers. Where ops may "
         "prepare the next forward pass, because it follows without a step "
         "mark between, only those on weights count",
     .fix_cpp = "statistics every N steps; at::_foreach_lerp_ and the like on "
                "lists of parameters",
     .fix_python = "statistics every N steps; torch._foreach_lerp_, or "
                   "AveragedModel with get_ema_multi_avg_fn",
     .change = "little work between steps"}};

}  // namespace
}  // namespace between_steps_rules

extern const std::span<const Rule> kBetweenSteps = between_steps_rules::kRules;

}  // namespace stepscope
