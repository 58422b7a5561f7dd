// Does a mask pick single elements out of a large tensor?
// Source: PyTorch documentation of torch.Tensor.masked_fill and torch.where;
// x[mask] lists the places of all True elements (aten::nonzero), gathers, and
// scatters its gradient.
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace boolean_masks_rules {
namespace {

constexpr char kChange[] = "masks in place of picked elements";

struct Picked {
  size_t step = 0;
  RowId row = kNone;
  Dims dims = {};
};

// True if `row` is x[mask] with a mask for each element: places are listed of a
// tensor of the sizes of x.
bool PicksElements(const AnalysisContext& m, RowId row) {
  const Dims& dims = DimsOf(m.trace, row, 0);
  return dims.size() >= 2 &&
         std::ranges::any_of(m.tree.inside(row), [&](RowId inner) {
           return PlainNameOf(m.trace, inner) == "nonzero" &&
                  DimsOf(m.trace, inner, 0) == dims;
         });
}

Verdict CheckBooleanMask(const AnalysisContext& m) {
  std::vector<Picked> found;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      const std::string_view name = PlainNameOf(m.trace, row);
      if ((name == "index" || name == "masked_select") &&
          PicksElements(m, row)) {
        found.push_back({step.step, row, DimsOf(m.trace, row, 0)});
      }
    }
  }
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Picked& one : found) {
    trains |= AppendWithNodes(m, one.row, 0, ops);
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Picked& largest = *std::ranges::max_element(
      found, {}, [](const Picked& one) { return ElementsIn(one.dims); });
  Finding finding =
      FindingAbout(m, largest.row, largest.row, "the picked elements");
  finding.evidence =
      "x[mask] picks single elements out of " + InBrackets(largest.dims) +
      ": it lists the places of all True elements, and gathers them" +
      (trains ? "; its backward pass puts gradients back by index" : "") +
      ". " +
      MeanCount(static_cast<double>(found.size()) /
                    static_cast<double>(m.steps.steady.size()),
                "such op") +
      " per step" + (trains ? ", with the backward passes, take " : " take ") +
      Milliseconds(all.ns * 1e-6) + ".";
  finding.assumption = "at best: applying a mask takes no time";
  finding.fix_python =
      "keep the shape and apply the mask: x.masked_fill(~mask, -inf) before a "
      "softmax or maximum, (x * mask).sum() / mask.sum() in place of "
      "x[mask].mean(); F.cross_entropy of masked scores in place of scores "
      "without their diagonal";
  finding.fix_cpp =
      "keep the shape and apply the mask: x.masked_fill(~mask, -inf) before a "
      "softmax or maximum, (x * mask).sum() / mask.sum() in place of "
      "x.index({mask}).mean()";
  finding.wrong_if =
      "what follows needs the picked elements in a row, as a median does, or "
      "is expensive and few of them are picked";
  return FireBound(std::move(finding), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "boolean-mask",
     .question = "Does a mask pick single elements out of a large tensor?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckBooleanMask,
     .reference = "PyTorch documentation, torch.Tensor.masked_fill: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.Tensor.masked_fill_.html",
     .detect = "in two thirds of the steps, a matrix or larger tensor is "
               "indexed with a mask of its own sizes (aten::nonzero of these "
               "sizes runs inside aten::index), and this takes 1 % of the step "
               "with its backward pass",
     .avoid = "the mask picks rows, as those of tokens before an output layer",
     .fix_cpp = "masked_fill, where, or a product with the mask",
     .fix_python = "masked_fill, torch.where, or a product with the mask"}};

}  // namespace
}  // namespace boolean_masks_rules

extern const std::span<const Rule> kBooleanMasks = boolean_masks_rules::kRules;

}  // namespace stepscope
