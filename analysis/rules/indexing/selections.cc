// Does a step compute a large tensor and then use only a small part of it?
// Source: PyTorch documentation, tensor views: slices are views and cost
// nothing, wherever they are taken.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/tensors/late_selections.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace selections_rules {
namespace {

constexpr char kChange[] = "selecting first";

using Maker = LateSelection::Maker;

std::string Advice(Maker maker) {
  switch (maker) {
    case Maker::kGather:
      return "choose the indices first: x[order[begin:end]] in place of "
             "x[order][begin:end]";
    case Maker::kProduct:
      return "select first: head(h[:, -1]) in place of head(h)[:, -1], "
             "encode(items[index]) in place of encode(items)[index]";
    case Maker::kScores:
      return "score what is gathered only: (h.unsqueeze(1) * "
             "weight[index]).sum(-1) in place of (h @ weight.T).gather(1, "
             "index)";
    case Maker::kSort:
      return "torch.topk(x, k) in place of the first k of sort(x) or "
             "argsort(x)";
    case Maker::kShuffle:
      return "torch.randint(n, (k,)) in place of torch.randperm(n)[:k], or one "
             "permutation for an epoch, of which each step takes the next k";
    case Maker::kElementwise:
      break;
  }
  return "select first, and compute the part only: x[..., begin:end].float() "
         "in place of x.float()[..., begin:end]";
}

std::string AdviceCpp(Maker maker) {
  switch (maker) {
    case Maker::kGather:
      return "choose the indices first: x.index_select(0, order.slice(0, "
             "begin, end))";
    case Maker::kProduct:
      return "select first: head(h.select(1, -1)) in place of "
             "head(h).select(1, -1)";
    case Maker::kScores:
      return "score what is gathered only: (h.unsqueeze(1) * "
             "weight.index({index})).sum(-1)";
    case Maker::kSort:
      return "torch::topk(x, k) in place of the first k of sort or argsort";
    case Maker::kShuffle:
      return "torch::randint(n, {k}) in place of the first k of "
             "torch::randperm(n), or one permutation for an epoch";
    case Maker::kElementwise:
      break;
  }
  return "select first, and compute the part only: x.narrow(dim, begin, "
         "length).to(torch::kFloat)";
}

Verdict CheckLateSelection(const AnalysisContext& m) {
  const std::vector<LateSelection> found = FindLateSelections(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  std::map<const LateSelection*, double> times;
  bool trains = false;
  double behind_ns = 0;
  for (const LateSelection& one : found) {
    behind_ns += (1 - one.left) * static_cast<double>(one.behind_ns) /
                 static_cast<double>(m.steps.steady.size());
    for (RowId row : one.ops) {
      const Op& op = m.trace.ops()[row];
      trains |= AppendWithNodes(m, row, one.left, ops);
      times[&one] += static_cast<double>(op.end_ns - op.begin_ns);
    }
    for (RowId row : one.selections) {  // their gradients have the whole size
      const Op& op = m.trace.ops()[row];
      for (RowId node : m.backward.Of(op)) {
        ops.push_back({node, one.left});
      }
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const LateSelection& largest = *std::ranges::max_element(
      found, {}, [&](const LateSelection& one) { return times[&one]; });
  const Op& last = m.trace.ops()[largest.selections.back()];
  Finding finding =
      FindingAbout(m, largest.ops.front(), largest.selections.back(),
                   "the ops from the large tensor to its part");
  if (!largest.sure) finding.confidence = Confidence::kHint;
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.ops.back()].name)) +
      " makes a tensor of " + InBrackets(largest.dims) + " (" +
      Bytes(static_cast<double>(largest.bytes)) + "), and only " +
      Percent(largest.used) +
      " of it is used: " + std::string(m.trace.name(last.name)) +
      " takes it out. The ops that make such tensors" +
      (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the ops, and freeing what they make, take as much less time as "
      "less is selected";
  finding.fix_python = Advice(largest.maker);
  finding.fix_cpp = AdviceCpp(largest.maker);
  finding.wrong_if = "the rest is used as well, in the next step for example";
  return FireBound(std::move(finding),
                   all.saved_ns + (m.has_gpu ? 0 : behind_ns), all.edit);
}

constexpr Rule kRules[] = {
    {.id = "late-selection",
     .question = "Does a step compute a large tensor of which it then uses a "
                 "small part?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckLateSelection,
     .reference = "PyTorch documentation, Tensor Views: "
                  "https://docs.pytorch.org/docs/stable/tensor_view.html",
     .detect =
         "in two thirds of the steps, a tensor of 1 MiB or more is gathered, "
         "multiplied, sorted, shuffled (torch.randperm) or computed element by "
         "element, the only ops that "
         "take a tensor of its size afterwards are slices, gathers and the "
         "like (of x[index], the gradient tells the number of rows), and "
         "these take less than half of it",
     .avoid = "an op in between needs all of it (a mean, a normalisation), "
              "other ops take a tensor of that size, several slices together "
              "cover half of it (as queries, keys and values do), or a gather "
              "takes more than 1 in 128 scores (a row of weights would be "
              "gathered for each)",
     .fix_cpp = "select first; torch::topk in place of sort",
     .fix_python = "select first; torch.topk in place of sort"}};

}  // namespace
}  // namespace selections_rules

extern const std::span<const Rule> kSelections = selections_rules::kRules;

}  // namespace stepscope
