// Does validation do what only training needs?
// Sources: PyTorch Performance Tuning Guide, "Disable gradient calculation for
// validation or inference"; "PyTorch Performance Features and How They
// Interact" (inference_mode first).
#include <string>

#include "report/words.h"
#include "rule.h"

namespace stepscope {
namespace {

constexpr double kShareOfWindow = 0.05;

Verdict CheckGradInValidation(const Measured& m) {
  const int64_t window = m.steps.windows.back().host.end_ns -
                         m.steps.windows.front().host.begin_ns;
  bool numbered = false;
  for (const Op& op : m.trace.ops()) numbered |= op.sequence >= 0;
  bool backward = false;
  for (const Op& op : m.trace.ops()) backward |= op.kind == OpKind::kBackward;
  if (!numbered && backward) {
    return CouldNotLookBecause(
        "ops carry no autograd sequence numbers in this trace");
  }
  Finding finding;
  int64_t span = 0, nodes = 0, held = -1;
  bool marked = true;
  for (const UnusedGraph& graph : m.unused_graphs) {
    if (graph.span.length() < kShareOfWindow * window) continue;
    span += graph.span.length();
    nodes += graph.nodes;
    held = std::max(held, graph.held_bytes);
    marked &= graph.marked;
    if (finding.examples.size() < 3) {
      finding.examples.push_back(
          {-1, graph.span.begin_ns, graph.span.end_ns,
           std::string(m.trace.name(m.trace.ops()[graph.first_op].name)) +
               " and what follows"});
    }
  }
  if (nodes == 0) return Clean();

  finding.confidence = Confidence::kStrong;
  finding.evidence =
      std::string(marked ? "Validation" : "A forward pass without backward") +
      " records gradients that are never used: " +
      Count(nodes, "autograd node") + " in " + Milliseconds(span * 1e-6) +
      " (" + Percent(static_cast<double>(span) / window) +
      " of the recorded window).";
  if (held > 0) {
    finding.evidence += " Up to " + Bytes(static_cast<double>(held)) +
                        " stay allocated meanwhile, activations that only "
                        "backward would need.";
  }
  finding.where = finding.examples.front().what;
  finding.assumption = "making one node costs 0.7 us; memory is the main gain";
  finding.fix_cpp =
      "c10::InferenceMode guard;  // around the validation pass (or "
      "torch::NoGradGuard)";
  finding.fix_python = "with torch.inference_mode(): ...";
  finding.wrong_if =
      "a backward pass over it runs later than the next "
      "optimizer step";
  const Edit edit{.drop_unused_graph = true};
  finding = Sized(m, std::move(finding), edit, 0);
  return Fire(std::move(finding), {edit});
}

constexpr Rule kRules[] = {
    {.id = "grad-in-validation",
     .question = "Do forward passes record gradients nobody uses?",
     .needs = {Kind::kOp},
     .check = &CheckGradInValidation,
     .reference = "PyTorch Performance Tuning Guide: Disable gradient "
                  "calculation for validation or inference"}};

}  // namespace

extern const std::span<const Rule> kValidation = kRules;

}  // namespace stepscope
