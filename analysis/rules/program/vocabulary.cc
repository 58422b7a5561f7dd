// Does the loss pass over scores for a large vocabulary again and again? 32,000
// words (Llama 2) is the smallest vocabulary of large language models; the
// largest have over 200,000.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/call_site.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace vocabulary_rules {
namespace {

constexpr int64_t kLargeVocabulary = 32'000;
// A fused loss reads the scores of a few tokens as soon as they are computed,
// and writes their gradients to the same place.
constexpr double kPasses = 2;
constexpr char kChange[] = "fused or chunked loss";

// Returns the forward softmax ops over the vocabulary in the steady steps.
std::vector<RowId> Losses(const AnalysisContext& m) {
  std::vector<RowId> rows;
  for (RowId row : m.tree.named("aten::_log_softmax")) {
    if (!InSteadyStep(m.steps, m.trace.ops()[row].begin_ns)) continue;
    const TensorShape scores = TensorArgument(m.trace, row, 0);
    if (scores.known() && scores.dims.size() >= 2 &&
        scores.dims.back() >= kLargeVocabulary) {
      rows.push_back(row);
    }
  }
  return rows;
}

// Returns how many scores products make per token. Other scores are for pairs,
// such as those of a queue of negatives next to that of the positive.
std::set<int64_t> WidthsOfProducts(const AnalysisContext& m) {
  std::set<int64_t> widths;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (m.tree.traits(row).matmul && !m.tree.in_backward(row)) {
      widths.insert(CostOf(m.trace, row).matmul.n);
    }
  }
  return widths;
}

// Labels shifted by one leave out one token per sequence. Ops on the scores
// before that work on at most this many times as many.
constexpr double kMostShifted = 1.1;

// All ops, except products, on as many elements as there are scores.
struct Traffic {
  std::vector<ShortenedOp> ops = {};
  double bytes = 0;  // in all steps
};
Traffic TrafficOf(const AnalysisContext& m, const std::set<double>& sizes) {
  Traffic traffic;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    if (!m.tree.computes(row) || m.trace.ops()[row].inputs == kNone) continue;
    const KernelClass kind = m.tree.traits(row).kind;
    if (kind != KernelClass::kElementwise && kind != KernelClass::kReduction &&
        kind != KernelClass::kCopy) {
      continue;
    }
    const OpCost cost = CostOf(m.trace, row);
    const bool fits = std::ranges::any_of(sizes, [&](double size) {
      return cost.elements >= size && cost.elements <= kMostShifted * size;
    });
    if (!fits || !InSteadyStep(m.steps, m.trace.ops()[row].begin_ns)) {
      continue;
    }
    traffic.ops.push_back({row});
    traffic.bytes += std::max(0.0, cost.bytes);
  }
  return traffic;
}

Verdict CheckLargeVocabularyLoss(const AnalysisContext& m) {
  if (!m.trace.watched(Kind::kOpShapes) && m.trace.op_inputs().empty()) {
    return Skip("the sizes of tensors were not recorded (record_shapes)");
  }
  std::vector<RowId> losses = Losses(m);
  if (losses.empty()) return Clean();
  const std::set<int64_t> widths = WidthsOfProducts(m);
  // Drop scores of pairs: no product makes scores of their width (see
  // WidthsOfProducts).
  std::erase_if(losses, [&](RowId row) {
    return !widths.contains(TensorArgument(m.trace, row, 0).dims.back());
  });
  if (losses.empty()) return Clean();
  std::set<double> sizes;
  double once = 0;  // bytes of the scores, in all steps
  for (RowId row : losses) {
    const TensorShape scores = TensorArgument(m.trace, row, 0);
    sizes.insert(static_cast<double>(ElementsOf(scores)));
    once += static_cast<double>(BytesOf(m.trace, scores));
  }
  Traffic traffic = TrafficOf(m, sizes);
  const double left =
      traffic.bytes > 0 ? std::min(1.0, kPasses * once / traffic.bytes) : 1;
  for (ShortenedOp& one : traffic.ops) one.left = left;
  const ShortenedOps fused = ShortenOps(m, std::move(traffic.ops), kChange);
  if (fused.saved_ns <= 0) return Clean();

  const RowId first = losses.front();
  const Op& op = m.trace.ops()[first];
  const TensorShape scores = TensorArgument(m.trace, first, 0);
  Finding finding;
  finding.confidence = Confidence::kStrong;
  const size_t step = SteadyStepAt(m.steps, op.begin_ns);
  finding.examples.push_back({m.steps.windows[step].number, op.begin_ns,
                              op.end_ns, OpWithShapes(m.trace, first)});
  finding.where = CallSites(m.trace).Source(op.thread, op.begin_ns, first);
  const double tokens = static_cast<double>(ElementsOf(scores)) /
                        static_cast<double>(scores.dims.back());
  finding.evidence =
      "The loss works on scores of " +
      std::to_string(static_cast<int64_t>(tokens)) + " tokens x " +
      std::to_string(scores.dims.back()) + " words, " +
      Bytes(static_cast<double>(BytesOf(m.trace, scores))) +
      ". Softmax, the loss, their gradients and copies of that size take " +
      Milliseconds(fused.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step and move " +
      Bytes(traffic.bytes / static_cast<double>(m.steps.steady.size())) +
      "; the scores, their softmax and their gradient exist at once.";
  finding.assumption =
      "at best: the loss of a few tokens at a time reads their scores and "
      "writes their gradients, and the products take as long as before; if the "
      "loss ignores most labels, computing scores only for the other tokens "
      "saves most of the products as well, which is not counted here";
  finding.fix_cpp =
      "compute the last product and the loss for a part of the tokens at a "
      "time, with a torch::autograd::Function that computes the gradient of "
      "each part right away";
  finding.fix_python =
      "a fused linear cross entropy (Liger Kernel, cut-cross-entropy, on a "
      "GPU), or the last layer and cross_entropy on chunks of the tokens, each "
      "in torch.utils.checkpoint.checkpoint(..., use_reentrant=False), which "
      "mainly saves memory";
  finding.wrong_if = "the scores are used for something else as well";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = fused.saved_ns,
                    .trials = {fused.edit}});
}

constexpr Rule kRules[] = {
    {.id = "large-vocabulary-loss",
     .question = "Does the loss pass over scores for a large vocabulary again "
                 "and again?",
     .needs = {Kind::kOp},
     .causes = {Cause::kCompute},
     .check = &CheckLargeVocabularyLoss,
     .reference = "Liger Kernel, fused linear cross entropy: "
                  "https://github.com/linkedin/Liger-Kernel",
     .detect = "aten::_log_softmax works on rows of at least 32,000 elements "
               "(the vocabulary of Llama 2), and the ops of that size move "
               "more bytes than reading the scores and writing their gradient",
     .avoid = "sizes were not recorded, or a fused loss makes no softmax of "
              "the whole batch",
     .fix_cpp = "the last product and the loss for a part of the tokens at a "
                "time",
     .fix_python = "a fused or chunked linear cross entropy"}};

}  // namespace
}  // namespace vocabulary_rules

extern const std::span<const Rule> kVocabulary = vocabulary_rules::kRules;

}  // namespace stepscope
