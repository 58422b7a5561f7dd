// Is a diagonal matrix made only to multiply by it?
// Source: a product with a diagonal matrix scales rows or columns, n^2 numbers
// by one each, where the product of two matrices needs n^3 operations (Golub
// and Van Loan, Matrix Computations, section 1.2.8).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/backward_nodes.h"
#include "evidence/program/forward_steps.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace diagonals_rules {
namespace {

// Below, the matrix fits into registers and a product takes what calling an op
// does.
constexpr int64_t kLeastSize = 32;
constexpr char kChange[] = "scaling in place of diagonal products";

// A diagonal matrix and the products that take it, in one step.
struct Diagonal {
  size_t step = 0;
  RowId makes = kNone;
  Dims matrix = {};
  std::vector<RowId> products = {};
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Diagonal> Find() const {
    std::vector<Diagonal> found;
    for (const ForwardStep& step : ForwardSteps(m_)) {
      for (size_t i = 0; i < step.ops.size(); ++i) {
        const std::optional<Dims> matrix = DiagonalMatrix(step.ops[i]);
        if (!matrix) continue;
        Diagonal one{step.step, step.ops[i], *matrix};
        AddProducts(std::span(step.ops).subspan(i + 1), one);
        if (!one.products.empty()) found.push_back(std::move(one));
      }
    }
    return found;
  }

 private:
  // The sizes of the diagonal matrix, or batch of them, that `row` makes.
  std::optional<Dims> DiagonalMatrix(RowId row) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    Dims made = DimsOf(m_.trace, row, 0);
    // Of a matrix, diag() returns the diagonal.
    if (!(name == "diag" && made.size() == 1) &&
        !(name == "diag_embed" && !made.empty())) {
      return {};
    }
    if (made.back() < kLeastSize ||
        NumberArgument(m_.trace, row, 1).value_or(0) != 0) {
      return {};
    }
    made.push_back(made.back());
    return made;
  }

  // Adds the products that take the matrix: those before another op takes or
  // makes a tensor of its sizes. Where a product makes one, as that of A D, one
  // right behind it takes both, as that of D A D.
  void AddProducts(std::span<const RowId> ops, Diagonal& one) const {
    bool made_another = false;
    for (RowId row : ops) {
      if (m_.tree.traits(row).bookkeeping) continue;
      const bool takes = TakesDims(m_.trace, row, one.matrix);
      const std::string_view name = PlainNameOf(m_.trace, row);
      const bool is_product = IsAnyOf(name, {"mm", "matmul", "bmm"});
      if (takes && is_product &&
          (!made_another || TakesTwo(m_.trace, row, one.matrix))) {
        one.products.push_back(row);
      } else if (takes) {
        return;
      }
      if (made_another) return;
      made_another = ResultDims(m_.trace, row) == one.matrix;
      if (made_another && !takes) return;
    }
  }

  const AnalysisContext& m_;
};

Verdict CheckDiagonalProduct(const AnalysisContext& m) {
  const std::vector<Diagonal> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  const BackwardNodes nodes(m.trace);
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Diagonal& one : found) {
    // At best: what scales takes no time.
    trains |= AppendWithNodes(m, nodes, one.makes, 0, ops);
    for (RowId row : one.products) {
      trains |= AppendWithNodes(m, nodes, row, 0, ops);
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Diagonal& largest = *std::ranges::max_element(
      found, {}, [](const Diagonal& one) { return ElementsIn(one.matrix); });
  Finding finding =
      FindingAbout(m, largest.makes, largest.products.back(),
                   "the diagonal matrix and the products with it");
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.makes].name)) +
      " makes a diagonal matrix of " + InBrackets(largest.matrix) +
      ", and only products take it: each of them scales rows or columns by one "
      "number, and multiplies zeros for the rest. Making and multiplying such "
      "matrices" +
      (trains ? ", with the backward passes," : "") + " takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: scaling takes no time";
  finding.fix_python =
      "scale by broadcasting: d[:, None] * A in place of torch.diag(d) @ A, "
      "A * d in place of A @ torch.diag(d)";
  finding.fix_cpp =
      "scale by broadcasting: d.unsqueeze(1) * A in place of "
      "torch::diag(d).mm(A), A * d in place of A.mm(torch::diag(d))";
  if (!trains) {
    finding.fix_python +=
        "; or, if neither ever changes, do it once before training";
    finding.fix_cpp +=
        "; or, if neither ever changes, do it once before training";
  }
  finding.wrong_if = "the products take another matrix of the same sizes";
  return FireBound(std::move(finding), all.saved_ns);
}

constexpr Rule kRules[] = {
    {.id = "diagonal-product",
     .question = "Is a diagonal matrix made only to multiply by it?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckDiagonalProduct,
     .reference = "PyTorch documentation, broadcasting semantics: "
                  "https://docs.pytorch.org/docs/stable/notes/"
                  "broadcasting.html",
     .detect =
         "in two thirds of the steps, torch.diag or torch.diag_embed makes a "
         "matrix of 32 rows or more, the next op that takes a tensor of its "
         "sizes is a matrix product, and this takes 1 % of the step",
     .avoid = "another op takes a tensor of these sizes first, such as the sum "
              "of a kernel matrix and its noise",
     .fix_cpp = "d.unsqueeze(1) * A",
     .fix_python = "d[:, None] * A"}};

}  // namespace
}  // namespace diagonals_rules

extern const std::span<const Rule> kDiagonals = diagonals_rules::kRules;

}  // namespace stepscope
