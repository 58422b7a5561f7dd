// Does each batch go over the weights of all samples to draw a few of them?
// Source: PyTorch documentation, torch.utils.data.WeightedRandomSampler, which
// draws the samples of a whole epoch at once.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace weighted_draws_rules {
namespace {

constexpr int64_t kManyPerSample = 100;  // weights per drawn sample
constexpr char kDrawnAhead[] = "samples drawn ahead";

// A call of aten::multinomial, which sums up all weights before it draws.
struct Draw {
  size_t step = 0;
  RowId row = kNone;
  int64_t weights = 0, drawn = 0;
  int64_t rows = 1;              // number of rows with the same weights
  std::vector<RowId> made = {};  // ops on as many numbers, before the draw
};

// Returns the ops before the draw that go over as many numbers as there are
// weights, such as powers and their sum.
std::vector<RowId> MakersOf(const AnalysisContext& m, const ForwardStep& step,
                            RowId draw, int64_t weights) {
  std::vector<RowId> made;
  for (RowId row : step.ops) {
    if (row == draw) break;
    const std::string_view name = PlainNameOf(m.trace, row);
    if ((IsElementwise(name) || name == "sum") &&
        TakesElements(m.trace, row, weights)) {
      made.push_back(row);
    }
  }
  return made;
}

// True if a product or a softmax before the draw makes as many numbers. The
// weights are then words of a language model, or actions of a policy.
bool ComeFromModel(const AnalysisContext& m, const ForwardStep& step,
                   RowId draw, int64_t weights) {
  for (RowId row : step.ops) {
    if (row == draw) break;
    const std::string_view name = PlainNameOf(m.trace, row);
    if (!IsProduct(name) && !IsAnyOf(name, {"softmax", "log_softmax"})) {
      continue;
    }
    const std::optional<Dims> made = ResultDims(m.trace, row);
    if (made && !made->empty() && made->back() == weights) return true;
  }
  return false;
}

// True if the weights are a single row that was expanded to several. A policy
// or a language model has different weights in each row.
bool AreOneRow(const AnalysisContext& m, const ForwardStep& step, RowId draw,
               int64_t rows, int64_t weights) {
  for (RowId row : step.ops) {
    if (row == draw) break;
    if (!IsAnyOf(PlainNameOf(m.trace, row), {"expand", "repeat"}) ||
        ElementsIn(DimsOf(m.trace, row, 0)) != weights) {
      continue;
    }
    const std::vector<int64_t> sizes = ListArgument(m.trace, row, 1);
    if (sizes.size() == 2 && sizes.front() == rows) return true;
  }
  return false;
}

std::vector<Draw> FewFromMany(const AnalysisContext& m) {
  std::vector<Draw> found;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      if (PlainNameOf(m.trace, row) != "multinomial") continue;
      const Dims& dims = DimsOf(m.trace, row, 0);
      const int64_t weights = dims.empty() ? 0 : dims.back();
      const int64_t rows = dims.size() == 2 ? dims.front() : 1;
      const int64_t drawn = NumberArgument(m.trace, row, 1).value_or(weights);
      if (weights < kManyPerSample * std::max<int64_t>(drawn, 1) ||
          (rows > 1 && !AreOneRow(m, step, row, rows, weights)) ||
          ComeFromModel(m, step, row, weights)) {
        continue;
      }
      found.push_back({step.step, row, weights, drawn, rows,
                       MakersOf(m, step, row, weights)});
    }
  }
  return found;
}

Verdict CheckWeightedDraw(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<Draw> found = FewFromMany(m);
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Draw& draw : found) {
    ops.push_back({draw.row, 0});
    for (RowId row : draw.made) ops.push_back({row, 0});
  }
  ShortenedOps all = ShortenOps(m, std::move(ops), kDrawnAhead);
  const Draw& largest = *std::ranges::max_element(found, {}, &Draw::weights);
  Finding finding =
      FindingAbout(m, largest.row, largest.row, "drawing the samples");
  finding.evidence =
      "aten::multinomial goes over " + std::to_string(largest.weights) +
      " weights to draw " + std::to_string(largest.drawn) + " of them" +
      (largest.rows > 1 ? ", " + std::to_string(largest.rows) +
                              " times with the same weights"
                        : "") +
      (largest.made.empty()
           ? "."
           : ", and " + Count(static_cast<int64_t>(largest.made.size()), "op") +
                 " before it " + (largest.made.size() == 1 ? "works" : "work") +
                 " on as many numbers.") +
      " This takes " + Milliseconds(all.ns * 1e-6) + " of the " +
      Milliseconds(m.step_ns() * 1e-6) + " step.";
  finding.assumption = "at best: drawing takes no time";
  if (largest.made.empty() && largest.rows == 1) {
    finding.fix_python =
        "draw the samples of many batches at once, as "
        "torch.utils.data.WeightedRandomSampler does for an epoch; or keep "
        "sums = weights.cumsum(0) and draw torch.searchsorted(sums, "
        "torch.rand(k) * sums[-1])";
    finding.fix_cpp =
        "draw the samples of many batches at once; or keep sums = "
        "weights.cumsum(0) and draw torch::searchsorted(sums, "
        "torch::rand({k}) * sums[-1])";
    finding.wrong_if =
        "the weights change in every step: then keep their sums in a tree, as "
        "prioritised replay does; or no sample may be drawn twice, which "
        "torch.rand and the sums do not ensure";
  } else if (largest.rows > 1) {
    finding.fix_python =
        "draw all at once from one row: torch.multinomial(weights, rows * k, "
        "replacement=True).view(rows, k)";
    finding.fix_cpp =
        "draw all at once from one row: torch::multinomial(weights, rows * k, "
        "true).view({rows, k})";
    finding.wrong_if = "each row must draw without repetition";
  } else {
    finding.fix_python =
        "keep the weights and their sums, by blocks or in a tree (a sum tree, "
        "as prioritised replay uses), change those of the batch only, and draw "
        "a block and then a sample in it";
    finding.fix_cpp = finding.fix_python;
    finding.wrong_if =
        "all weights change in every step, or these ops make something else";
  }
  return Fire(std::move(finding), std::move(all.edit), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "weighted-draw",
     .question =
         "Does each batch go over the weights of all samples to draw a few?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kData},
     .check = &CheckWeightedDraw,
     .reference = "PyTorch documentation, torch.utils.data."
                  "WeightedRandomSampler: https://docs.pytorch.org/docs/stable/"
                  "data.html",
     .detect = "in two thirds of the steps, aten::multinomial draws from a "
               "list of weights that is at least 100 times as long as what it "
               "draws, or from one that was expanded to rows; it takes 1 % of "
               "the step",
     .avoid = "it draws actions or words from the outputs of a model, or about "
              "as many samples as there are weights, as for an epoch",
     .fix_cpp = "the samples of many batches in one draw; torch::searchsorted "
                "in sums that are kept",
     .fix_python = "torch.utils.data.WeightedRandomSampler; torch.searchsorted "
                   "in sums that are kept",
     .change = "samples drawn ahead"}};

}  // namespace
}  // namespace weighted_draws_rules

extern const std::span<const Rule> kWeightedDraws =
    weighted_draws_rules::kRules;

}  // namespace stepscope
