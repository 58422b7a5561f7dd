// Does a mask pick single elements out of a large tensor? Source: PyTorch
// documentation of torch.Tensor.masked_fill and torch.where. x[mask] lists the
// indices of all True elements (aten::nonzero), gathers, and scatters its
// gradient.
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
// This many picks of rows in a step are a loop over groups. Our own choice; a
// loss picks only a few times.
constexpr double kManyPicks = 16;

struct Picked {
  size_t step = 0;
  RowId row = kNone;
  Dims dims = {};
};

// True if `row` lists the indices of True elements in a mask of these sizes.
bool ListsPlaces(const AnalysisContext& m, RowId row, const Dims& mask) {
  return std::ranges::any_of(m.tree.inside(row), [&](RowId inner) {
    return PlainNameOf(m.trace, inner) == "nonzero" &&
           DimsOf(m.trace, inner, 0) == mask;
  });
}

// True if `row` is x[mask] with one mask value per element.
bool PicksElements(const AnalysisContext& m, RowId row) {
  const Dims& dims = DimsOf(m.trace, row, 0);
  // In one dimension, such a mask picks rows.
  return dims.size() >= 2 && ListsPlaces(m, row, dims);
}

// True if `row` is x[mask] with one mask value per row.
bool PicksRows(const AnalysisContext& m, RowId row) {
  const Dims& dims = DimsOf(m.trace, row, 0);
  return !dims.empty() && ListsPlaces(m, row, {dims.front()});
}

std::vector<Picked> FindPicks(const AnalysisContext& m,
                              bool (*picks)(const AnalysisContext&, RowId)) {
  std::vector<Picked> found;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      const std::string_view name = PlainNameOf(m.trace, row);
      if ((name == "index" || name == "masked_select") && picks(m, row)) {
        found.push_back({step.step, row, DimsOf(m.trace, row, 0)});
      }
    }
  }
  return found;
}

// Checks for rows picked group by group, such as the relations of a graph or
// the experts of a mixture. On a GPU, each pick waits for the number of its
// rows.
Verdict CheckPickedGroups(const AnalysisContext& m) {
  if (!m.has_gpu) return Clean();
  std::map<int64_t, std::vector<Picked>> by_rows;
  for (Picked& one : FindPicks(m, &PicksRows)) {
    by_rows[one.dims.front()].push_back(std::move(one));
  }
  const auto most = std::ranges::max_element(
      by_rows, {}, [](const auto& entry) { return entry.second.size(); });
  const auto steps = static_cast<double>(m.steps.steady.size());
  if (most == by_rows.end() || !RecursInMostSteps(m.steps, most->second) ||
      static_cast<double>(most->second.size()) < kManyPicks * steps) {
    return Clean();
  }
  std::vector<ShortenedOp> ops;
  for (const Picked& one : most->second) AppendWithNodes(m, one.row, 0, ops);
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const RowId first = most->second.front().row;
  Finding finding = FindingAbout(m, first, first, "the first picked rows");
  finding.evidence =
      "x[mask] picks rows of tensors of " + Count(most->first, "row") + " " +
      MeanCount(static_cast<double>(most->second.size()) / steps, "time") +
      " per step. Each time it lists the places of all True elements, waits "
      "for the GPU to know how many there are, and gathers. On the GPU that "
      "takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: the rows of a group are known beforehand";
  finding.fix_python =
      "if the masks are the same in each step, pick once, before training, and "
      "keep the parts (or index = mask.nonzero().squeeze(1), and "
      "x.index_select(0, index) in the step); if not, sort once per step: "
      "order = group.argsort(), sizes = group.bincount().tolist(), then "
      "x[order].split(sizes), one wait for all groups";
  finding.fix_cpp =
      "if the masks are the same in each step, keep mask.nonzero() and use "
      "index_select; if not, sort by group once per step, and split";
  finding.wrong_if = "each mask follows from what the one before it picked";
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .trials = {all.edit}});
}

Verdict CheckBooleanMask(const AnalysisContext& m) {
  const std::vector<Picked> found = FindPicks(m, &PicksElements);
  if (!RecursInMostSteps(m.steps, found)) return CheckPickedGroups(m);
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
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "boolean-mask",
     .question = "Does a mask pick single elements out of a large tensor, or "
                 "rows again and again?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch, Cause::kSync},
     .check = &CheckBooleanMask,
     .reference = "PyTorch documentation, torch.Tensor.masked_fill: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.Tensor.masked_fill_.html",
     .detect = "in two thirds of the steps, a matrix or larger tensor is "
               "indexed with a mask of its own sizes (aten::nonzero of these "
               "sizes runs inside aten::index), and this takes 1 % of the step "
               "with its backward pass; or, on a GPU, rows of tensors of one "
               "length are picked by a mask 16 times per step",
     .avoid = "the mask picks rows a few times, as those of tokens before an "
              "output layer",
     .fix_cpp = "masked_fill, where, or a product with the mask",
     .fix_python = "masked_fill, torch.where, or a product with the mask"}};

}  // namespace
}  // namespace boolean_masks_rules

extern const std::span<const Rule> kBooleanMasks = boolean_masks_rules::kRules;

}  // namespace stepscope
