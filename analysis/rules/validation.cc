// Does validation do work that only training needs, or take longer than it
// should?
// Sources: PyTorch Performance Tuning Guide, "Disable gradient calculation for
// validation or inference"; "PyTorch Performance Features and How They
// Interact" (inference_mode first).
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "context/rule.h"
#include "evidence/gradient_passes.h"
#include "evidence/stalls/stall_sum.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace validation_rules {
namespace {

constexpr double kShareOfWindow = 0.05;

Verdict CheckGradInValidation(const AnalysisContext& m) {
  const int64_t window = m.steps.windows.back().host.end_ns -
                         m.steps.windows.front().host.begin_ns;
  bool numbered = false;
  for (const Op& op : m.trace.ops()) numbered |= op.sequence >= 0;
  if (!numbered && Trains(m.trace)) {
    return Skip("ops carry no autograd sequence numbers in this trace");
  }
  // A validation pass in every step is short, but contains matrix products or
  // convolutions. A short graph without these is just a few stray ops.
  const auto is_pass = [&](const UnusedGraph& graph) {
    return graph.has_matmul || graph.span.length() >= kShareOfWindow * window;
  };
  int64_t total = 0;
  for (const UnusedGraph& graph : m.parts.unused_graphs) {
    if (is_pass(graph)) total += graph.span.length();
  }
  if (total < kShareOfWindow * window) return Clean();
  Finding finding;
  int64_t span = 0, nodes = 0, held = -1;
  bool marked = true;
  for (const UnusedGraph& graph : m.parts.unused_graphs) {
    if (!is_pass(graph)) continue;
    span += graph.span.length();
    nodes += graph.nodes;
    held = std::max(held, graph.held_bytes);
    marked &= graph.marked;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, graph.span.begin_ns, graph.span.end_ns,
           std::string(m.trace.name(m.trace.ops()[graph.first_op].name)) +
               " and the ops after it"});
    }
  }
  if (nodes == 0) return Clean();

  const bool trains = Trains(m.trace);
  finding.confidence = trains ? Confidence::kStrong : Confidence::kHint;
  finding.evidence =
      std::string(!trains  ? "No backward pass was recorded, but the program"
                  : marked ? "Validation"
                           : "A forward pass without backward") +
      " builds an autograd graph that is never used: " + Count(nodes, "node") +
      " in " + Milliseconds(span * 1e-6) + " (" +
      Percent(static_cast<double>(span) / window) + " of the recorded window).";
  if (held > 0) {
    finding.evidence += " Up to " + Bytes(static_cast<double>(held)) +
                        " of activations stay allocated meanwhile, although "
                        "only backward would need them.";
  }
  finding.where = finding.examples.front().what;
  finding.assumption =
      RecordedAnomalyMode(m.trace).value_or(false)
          ? "anomaly mode stays on; most of the gain is the time of its stack "
            "traces"
      : m.has_gpu ? "creating one node costs 0.7 us; the main gain is memory"
                  : "creating one node costs 0.7 us, and each page of 4 KiB "
                    "that the graph holds 0.25 us; the main gain is memory";
  finding.fix_cpp = std::string("c10::InferenceMode guard;  // around the ") +
                    (trains ? "validation pass" : "step") +
                    " (or torch::NoGradGuard)";
  finding.fix_python = "with torch.inference_mode(): ...";
  finding.wrong_if =
      trains ? "a backward pass over it runs after the next optimizer step"
             : "a backward pass over it runs after the recording, as after a "
               "rollout of many steps";
  // The cost was counted op by op, so the noise of the steps does not affect
  // it.
  return Fire(Found{.finding = std::move(finding),
                    .alternatives = {{Edit{.drop_unused_graph = true}}},
                    .beyond_noise = true});
}

// Returns the index of the argument that switches a layer to training mode;
// kNoFlag for ops without such an argument.
constexpr size_t kNoFlag = 99;
size_t TrainFlagOf(std::string_view name) {
  if (name == "aten::batch_norm") return 5;
  if (name == "aten::dropout" || name == "aten::feature_dropout" ||
      name == "aten::alpha_dropout") {
    return 2;
  }
  return kNoFlag;
}

// True for instance norms, and for batch norms with track_running_stats=False.
// They use the statistics of the batch even in eval().
bool KeepsNoStatistics(const AnalysisContext& m, const Op& op,
                       const std::vector<Argument>& arguments) {
  constexpr size_t kRunningMean = 3;
  if (m.trace.name(op.name) != "aten::batch_norm") return false;
  return arguments[kRunningMean].dims.empty() ||
         (op.parent != kNone &&
          m.trace.name(m.trace.ops()[op.parent].name) == "aten::instance_norm");
}

// Layers that run in training mode in passes without backward.
struct TrainMode {
  std::vector<RowId> layers = {};
  bool flags_known = false;  // for any such layer
  bool marked = false;       // in a phase called "validate"
};

// True if the program uses activation checkpointing, which runs the forward
// pass without gradients and again in backward. Layers then run inside backward
// nodes.
bool Recomputes(const AnalysisContext& m) {
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (!m.tree.in_backward(row)) continue;
    const std::string_view name = m.trace.name(m.trace.ops()[row].name);
    if (TrainFlagOf(name) != kNoFlag || name == "aten::conv2d" ||
        name == "aten::linear") {
      return true;
    }
  }
  return false;
}

// True if there are several steady steps and each contains some of `ops`. No
// program validates that often, so they are not validation.
bool InEveryStep(const AnalysisContext& m, const std::vector<RowId>& ops) {
  constexpr size_t kSeveral = 2;
  std::vector<bool> has(m.steps.windows.size() + 1);
  for (RowId row : ops) {
    has[SteadyStepAt(m.steps, m.trace.ops()[row].begin_ns)] = true;
  }
  return m.steps.steady.size() >= kSeveral &&
         std::ranges::all_of(m.steps.steady, [&](size_t i) { return has[i]; });
}

TrainMode FindTrainMode(const AnalysisContext& m) {
  TrainMode found;
  if (m.steps.thread == kNone) return found;
  const std::vector<Span> marked = ValidationPasses(m.trace, m.steps.thread);
  std::vector<Span> unused;
  for (const UnusedGraph& graph : m.parts.unused_graphs)
    unused.push_back(graph.span);
  unused = Merge(std::move(unused));
  bool trains = false, numbered = false;
  for (const Op& op : m.trace.ops()) {
    trains |= op.kind == OpKind::kBackward;
    numbered |= op.kind == OpKind::kOperator && op.sequence >= 0;
  }
  // Ops without gradients have no sequence numbers. This tells something only
  // if other ops have them.
  const bool numbers_tell = trains && numbered && !Recomputes(m);
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    const size_t flag = TrainFlagOf(m.trace.name(op.name));
    if (flag == kNoFlag || op.inputs == kNone) continue;
    const auto& arguments = m.trace.op_inputs()[op.inputs].arguments;
    if (arguments.size() <= flag || arguments[flag].concrete == 0) continue;
    if (KeepsNoStatistics(m, op, arguments)) continue;
    found.flags_known = true;
    if (m.trace.name(arguments[flag].concrete) != "True") continue;
    const Span span{op.begin_ns, op.end_ns};
    const bool in_validation = LengthIn(marked, span) > 0;
    if (!in_validation && LengthIn(unused, span) == 0 &&
        !(numbers_tell && op.sequence < 0)) {
      continue;
    }
    found.marked |= in_validation;
    found.layers.push_back(row);
  }
  // Programs run a teacher or a momentum encoder in training mode in every step
  // on purpose.
  if (!found.marked && InEveryStep(m, found.layers)) found.layers.clear();
  return found;
}

bool IsWithoutInferenceMode(const Trace& trace) {
  return std::ranges::any_of(trace.settings(), [](const Settings& row) {
    return row.grad_mode == 0 && row.inference_mode == 0;
  });
}

Finding TrainModeFinding(const AnalysisContext& m, const TrainMode& found) {
  Finding finding;
  finding.confidence = Confidence::kProven;
  int64_t norms = 0, ns = 0;
  for (RowId row : found.layers) {
    const Op& op = m.trace.ops()[row];
    norms += m.trace.name(op.name) == "aten::batch_norm";
    ns += op.end_ns - op.begin_ns;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, op.begin_ns, op.end_ns,
           std::string(m.trace.name(op.name)) + " with train = True"});
    }
  }
  const int64_t dropouts = static_cast<int64_t>(found.layers.size()) - norms;
  finding.evidence =
      std::string(found.marked ? "Validation" : "A pass without gradients") +
      " runs in training mode: " +
      (norms > 0 ? Count(norms, "batch norm") : std::string()) +
      (norms > 0 && dropouts > 0 ? " and " : "") +
      (dropouts > 0 ? Count(dropouts, "dropout") : std::string()) +
      (norms > 0 ? ". Its results depend on the batch, and the running "
                   "statistics change."
                 : ". Its results are random.");
  finding.where =
      std::string(m.trace.name(m.trace.ops()[found.layers.front()].name));
  finding.assumption =
      "correct results matter first; these layers take " +
      Milliseconds(static_cast<double>(ns) * 1e-6 /
                   static_cast<double>(m.steps.windows.size())) +
      " per step on the host";
  finding.fix_cpp = "model->eval(); c10::InferenceMode guard;  // then train()";
  finding.fix_python =
      "model.eval() and torch.inference_mode() around it, then model.train()";
  finding.wrong_if =
      "this is Monte Carlo dropout, or the pass gathers batch norm statistics";
  return finding;
}

Verdict CheckValidationMode(const AnalysisContext& m) {
  const TrainMode found = FindTrainMode(m);
  if (!found.layers.empty()) {
    return Fire(
        Found{.finding = TrainModeFinding(m, found), .regardless = true});
  }
  if (IsWithoutInferenceMode(m.trace)) {
    Finding finding;
    finding.confidence = Confidence::kProven;
    finding.evidence =
        "Gradients are off, but inference mode is not on: PyTorch maintains "
        "version counters and tracks views without need.";
    finding.assumption = "at most 5 % of the host's time";
    finding.fix_cpp =
        "c10::InferenceMode guard;  // instead of torch::NoGradGuard";
    finding.fix_python =
        "with torch.inference_mode(): ...  # instead of no_grad()";
    finding.wrong_if = "autograd uses its tensors later";
    return Fire(std::move(finding));
  }
  if (!found.flags_known && m.trace.settings().empty()) {
    return Skip(
        "no batch norm or dropout was recorded with its training flag "
        "(record_shapes)");
  }
  return Clean();
}

// Validating a fifth of the data after each epoch takes at most a fifth of the
// time, even if its batches take as long as training batches. If validation
// takes more, it is more frequent or slower than that.
constexpr double kUsualShare = 0.2;

constexpr char kFixFrequent[] =
    "validate every N times as many steps, or on a fixed part of the data; use "
    "batches as large as memory allows; compute once per pass what is the same "
    "for all batches";

// True if a range's name shows the validation; otherwise only the ops do.
bool IsNamedValidation(const AnalysisContext& m, const Stall& stall) {
  return 2 * static_cast<double>(m.facts[stall.step].validation_ns) >=
         stall.excess_ns;
}

Verdict CheckValidationTime(const AnalysisContext& m) {
  const StallSum sum = SumOf(m, StallKind::kValidation);
  // A single pass shows how long it takes, but not how often it runs.
  if (sum.count < 2 || sum.lost_ns < kUsualShare * sum.step_ns) return Clean();
  const bool named =
      std::ranges::all_of(m.stalls.stalls, [&](const Stall& stall) {
        return stall.kind != StallKind::kValidation ||
               IsNamedValidation(m, stall);
      });
  Finding finding;
  finding.confidence = named ? Confidence::kStrong : Confidence::kHint;
  finding.evidence =
      StepsInWords(sum, m.stalls) + " run " +
      (named ? "validation" : "forward passes without backward") + " for " +
      Milliseconds(sum.each_ns * 1e-6) + " on average, " +
      Percent(sum.lost_ns / sum.step_ns) + " of the time of all steps" +
      (sum.what.empty() ? "" : "; longest in " + sum.what) + ".";
  finding.examples = sum.examples;
  finding.where = "validation";
  finding.assumption =
      "at best: without it. Half as often, or twice as fast, gains half";
  finding.fix_cpp = kFixFrequent;
  finding.fix_python = kFixFrequent;
  finding.wrong_if =
      "training needs what these passes compute, as with rollouts, or the "
      "recorded steps validate more often than most";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = sum.most_ns,
                    .baseline_ms = sum.step_ns * 1e-6});
}

constexpr Rule kRules[] = {
    {.id = "grad-in-validation",
     .question =
         "Do forward passes build an autograd graph that is never used?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckGradInValidation,
     .reference = "PyTorch Performance Tuning Guide: Disable gradient "
                  "calculation for validation or inference",
     .detect =
         "no backward pass visits the autograd nodes of consecutive forward "
         "ops with a convolution or matrix product before the next optimizer "
         "step, and these ops take 5 % of the recorded window or more. A hint, "
         "where three steps or more have no backward pass at all",
     .avoid = "the window may end before the backward pass, the layers are "
              "frozen, or the program uses activation checkpointing",
     .fix_cpp = "c10::InferenceMode guard; or torch::NoGradGuard",
     .fix_python = "with torch.inference_mode():"},
    {.id = "validation-mode",
     .question = "Does validation run layers in training mode, or without "
                 "inference mode?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckValidationMode,
     .reference = "PyTorch Performance Features and How They Interact: eval, "
                  "no_grad and inference_mode",
     .detect = "batch norm or dropout runs with train = True in a pass without "
               "backward, or gradients are off but inference mode is not on",
     .avoid = "the program uses activation checkpointing, which runs the "
              "forward pass without gradients and again in backward",
     .fix_cpp = "model->eval(); c10::InferenceMode guard;",
     .fix_python = "model.eval(); with torch.inference_mode():"},
    {.id = "frequent-validation",
     .question = "Does validation take much of the run?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute, Cause::kHostCode},
     .check = &CheckValidationTime,
     .reference = "PyTorch Lightning documentation: Trainer "
                  "(check_val_every_n_epoch, limit_val_batches)",
     .detect = "two steps or more have forward work without backward work, or "
               "a range named for validation. The gain is at most what these "
               "passes take, spread over all steps, and that is a fifth of the "
               "time or more. Without such a range it is a hint",
     .avoid = "more than a third of the steps do so: then it is part of the "
              "usual step",
     .fix_cpp = kFixFrequent,
     .fix_python = kFixFrequent}};

}  // namespace
}  // namespace validation_rules

extern const std::span<const Rule> kValidation = validation_rules::kRules;

}  // namespace stepscope
