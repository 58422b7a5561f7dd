// Are thousands of tiny matrices multiplied as a batch?
// Source: Masliah et al. 2016, High-Performance Matrix-Matrix Multiplications
// of Very Small Matrices: a general routine spends its time on each matrix, not
// on its few numbers.
#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace tiny_products_rules {
namespace {

// Rotations in space and covariances in the plane are at most so large. From
// some 8 on, a batch of products is as fast as products that are written out.
constexpr int64_t kMostSize = 4;
constexpr int64_t kLeastBatch = 4096;
constexpr char kChange[] = "tiny products written out";

struct Tiny {
  size_t step = 0;
  RowId row = kNone;  // the outermost op
  MatmulShape sizes = {};
};

// The batch of tiny products that `row` is or calls.
std::optional<MatmulShape> TinyProducts(const AnalysisContext& m, RowId row) {
  const auto sizes_of = [&](RowId op) -> std::optional<MatmulShape> {
    if (!IsAnyOf(PlainNameOf(m.trace, op), {"bmm", "baddbmm"})) return {};
    const MatmulShape sizes = CostOf(m.trace, op).matmul;
    const int64_t most = std::max({sizes.m, sizes.n, sizes.k});
    // An outer product has nothing to add up.
    if (most <= 0 || most > kMostSize || sizes.batch < kLeastBatch) return {};
    return sizes;
  };
  if (const auto own = sizes_of(row)) return own;
  for (RowId inner : m.tree.inside(row)) {
    if (const auto sizes = sizes_of(inner)) return sizes;
  }
  return {};
}

Verdict CheckTinyProducts(const AnalysisContext& m) {
  std::vector<Tiny> found;
  for (const ForwardStep& step : m.forward) {
    for (RowId row : step.ops) {
      if (m.tree.traits(row).bookkeeping) continue;
      const std::optional<MatmulShape> sizes = TinyProducts(m, row);
      if (sizes) found.push_back({step.step, row, *sizes});
    }
  }
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Tiny& one : found) trains |= AppendWithNodes(m, one.row, 0, ops);
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Tiny& largest = *std::ranges::max_element(
      found, {}, [](const Tiny& one) { return one.sizes.batch; });
  Finding finding = FindingAbout(m, largest.row, largest.row, "the products");
  const MatmulShape& sizes = largest.sizes;
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.row].name)) +
      " multiplies " + std::to_string(sizes.batch) + " pairs of matrices of " +
      InBrackets({sizes.m, sizes.k}) + " and " +
      InBrackets({sizes.k, sizes.n}) +
      ". A batch of so small products takes much longer than their few "
      "multiplications, and copies what is expanded. " +
      MeanCount(static_cast<double>(found.size()) /
                    static_cast<double>(m.steps.steady.size()),
                "such op") +
      " per step" + (trains ? ", with the backward passes, take " : " take ") +
      Milliseconds(all.ns * 1e-6) + ".";
  finding.assumption = "at best: elementwise products take no time";
  finding.fix_python =
      "write the products out: a * dx * dx + 2 * b * dx * dy + c * dy * dy in "
      "place of d.T @ [[a, b], [b, c]] @ d; sum the columns, "
      "m[..., 0] * x[..., :1] + m[..., 1] * x[..., 1:2] + ..., in place of m @ "
      "x";
  finding.fix_cpp =
      "write the products out, as sums of columns times numbers: "
      "m.select(-1, 0) * x.narrow(-1, 0, 1) + ...";
  finding.wrong_if =
      "all products share one side: then one large product does it, "
      "points @ rotation.T";
  return FireBound(std::move(finding), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "tiny-products",
     .question = "Are thousands of tiny matrices multiplied as a batch?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckTinyProducts,
     .reference = "Masliah et al. 2016, High-Performance Matrix-Matrix "
                  "Multiplications of Very Small Matrices: "
                  "https://doi.org/10.1007/978-3-319-43659-3_48",
     .detect = "in two thirds of the steps, a batched product of 4096 pairs or "
               "more multiplies matrices with at most 4 rows and columns, and "
               "this takes 1 % of the step with its backward pass",
     .avoid = "the matrices are larger, or there are few",
     .fix_cpp = "the products written out, element by element",
     .fix_python = "the products written out, element by element"}};

}  // namespace
}  // namespace tiny_products_rules

extern const std::span<const Rule> kTinyProducts = tiny_products_rules::kRules;

}  // namespace stepscope
