// Is a diagonal matrix made only to multiply by it, or to factorise it? Source:
// a product with a diagonal matrix only scales rows or columns, which takes n^2
// operations, while the product of two matrices takes n^3 (Golub and Van Loan,
// Matrix Computations, section 1.2.8).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace diagonals_rules {
namespace {

// A smaller matrix fits into registers, and a product takes no longer than
// calling an op.
constexpr int64_t kLeastSize = 32;
constexpr char kChange[] = "scaling in place of diagonal products";
constexpr char kElementwise[] = "diagonals in place of matrices";

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
    for (const ForwardStep& step : m_.forward) {
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
  // Returns the sizes of the diagonal matrix, or batch of such, that `row`
  // makes.
  std::optional<Dims> DiagonalMatrix(RowId row) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    Dims made = DimsOf(m_.trace, row, 0);
    // Given a matrix, diag() returns its diagonal instead.
    if (!(name == "diag" && made.size() == 1) &&
        !(name == "diag_embed" && !made.empty())) {
      return {};
    }
    // An offset diagonal shifts rows, which scaling cannot do.
    if (made.back() < kLeastSize ||
        NumberArgument(m_.trace, row, 1).value_or(0) != 0) {
      return {};
    }
    made.push_back(made.back());
    return made;
  }

  // Adds the products that take the matrix, up to the next other op that takes
  // or makes a tensor of its sizes. If such a product, as A D, makes a tensor
  // of these sizes, a product right after it may take both, as D A D does.
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
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Diagonal& one : found) {
    // At best, scaling takes no time.
    trains |= AppendWithNodes(m, one.makes, 0, ops);
    for (RowId row : one.products) {
      trains |= AppendWithNodes(m, row, 0, ops);
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
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

// A diagonal matrix that is factorised, in one step.
struct Factorised {
  size_t step = 0;
  RowId makes = kNone, factorises = kNone;
  Dims matrix = {};
  std::vector<RowId> ops = {};  // that take a matrix of these sizes
};

// True for ops with n^3 operations whose result is simple for a diagonal
// matrix.
bool Factorises(std::string_view plain_name) {
  return Contains(plain_name, "cholesky") ||
         IsAnyOf(plain_name,
                 {"det", "inverse", "linalg_det", "linalg_eigh", "linalg_inv",
                  "linalg_inv_ex", "linalg_lu_factor", "linalg_slogdet",
                  "linalg_solve", "logdet", "slogdet"});
}

// Returns the ops that follow `makes` in the step, if one of them factorises
// it.
std::optional<Factorised> FactorisedAt(const AnalysisContext& m,
                                       const ForwardStep& step, size_t i) {
  const RowId makes = step.ops[i];
  const Dims& diagonal = DimsOf(m.trace, makes, 0);
  if (PlainNameOf(m.trace, makes) != "diag_embed" || diagonal.empty() ||
      ElementsIn(diagonal) <= 0) {
    return {};
  }
  Factorised one{.step = step.step, .makes = makes, .matrix = diagonal};
  one.matrix.push_back(diagonal.back());
  one.ops.push_back(makes);
  Dims flat;  // the sizes of the matrix as a row
  for (++i; i < step.ops.size(); ++i) {
    const RowId row = step.ops[i];
    const bool takes = TakesDims(m.trace, row, one.matrix);
    if (!takes && (flat.empty() || !TakesDims(m.trace, row, flat))) continue;
    const std::string_view name = PlainNameOf(m.trace, row);
    // The sum with another matrix is not diagonal. A comparison with its own
    // transpose leaves the matrix unchanged.
    if (one.factorises == kNone && TakesTwo(m.trace, row, one.matrix) &&
        !IsAnyOf(name, {"isclose", "eq"})) {
      return {};
    }
    one.ops.push_back(row);
    if (takes && name == "reshape") {
      flat = {diagonal.front(), ElementsIn(one.matrix) / diagonal.front()};
    }
    if (one.factorises == kNone && takes && Factorises(name)) {
      one.factorises = row;
    }
  }
  if (one.factorises == kNone) return {};
  return one;
}

bool IsCholesky(const AnalysisContext& m, const Factorised& one) {
  return Contains(m.trace.name(m.trace.ops()[one.factorises].name), "cholesky");
}

Verdict CheckDiagonalCovariance(const AnalysisContext& m) {
  std::vector<Factorised> found;
  for (const ForwardStep& step : m.forward) {
    for (size_t i = 0; i < step.ops.size(); ++i) {
      std::optional<Factorised> one = FactorisedAt(m, step, i);
      if (one) found.push_back(*std::move(one));
    }
  }
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Factorised& one : found) {
    for (RowId row : one.ops) trains |= AppendWithNodes(m, row, 0, ops);
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kElementwise);
  const Factorised& largest = *std::ranges::max_element(
      found, {}, [](const Factorised& one) { return ElementsIn(one.matrix); });
  Finding finding = FindingAbout(m, largest.makes, largest.factorises,
                                 "the diagonal matrix and its factorisation");
  finding.evidence =
      "aten::diag_embed makes diagonal matrices of " +
      InBrackets(largest.matrix) + ", and " +
      std::string(m.trace.name(m.trace.ops()[largest.factorises].name)) +
      " factorises them" +
      (IsCholesky(m, largest)
           ? ", as a normal distribution with a covariance matrix does"
           : "") +
      ". The ops on matrices of that size" +
      (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the same with the numbers on the diagonal takes no time";
  finding.fix_cpp =
      "work with the numbers on the diagonal: their roots are the Cholesky "
      "factor, the sum of their logarithms is that of the determinant, and "
      "their reciprocals are the inverse";
  finding.fix_python =
      IsCholesky(m, largest)
          ? "torch.distributions.Independent(Normal(mean, deviation), 1) in "
            "place of MultivariateNormal(mean, torch.diag_embed(deviation ** "
            "2)); the Cholesky factor of a diagonal matrix is the root of its "
            "diagonal"
          : "work with the numbers on the diagonal: scale.log().sum(-1) in "
            "place of torch.linalg.slogdet(torch.diag_embed(scale)), 1 / scale "
            "in place of the inverse";
  finding.wrong_if = "a full matrix of the same sizes is factorised";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "diagonal-covariance",
     .question = "Is a diagonal matrix, as of covariances, factorised?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute, Cause::kDispatch},
     .check = &CheckDiagonalCovariance,
     .reference = "PyTorch documentation, torch.distributions.Independent: "
                  "https://docs.pytorch.org/docs/stable/distributions.html",
     .detect = "in two thirds of the steps, torch.diag_embed makes matrices, "
               "and a Cholesky factorisation, a determinant, an inverse or the "
               "like takes matrices of their sizes behind it; what takes such "
               "matrices from there on is 1 % of "
               "the step",
     .avoid = "another matrix is added to the diagonal one first, as that of a "
              "kernel to noise",
     .fix_cpp = "the numbers on the diagonal in place of the matrix",
     .fix_python = "Independent(Normal(mean, deviation), 1) in place of "
                   "MultivariateNormal"},
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
