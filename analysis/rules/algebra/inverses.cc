// Are matrices inverted only to be multiplied, or factorised more than once?
// Does each step factorise a matrix that stays the same? Source: PyTorch
// documentation, torch.linalg.inv: "Consider using torch.linalg.solve() if
// possible". An inverse takes 2 n^3 operations, a Cholesky factor n^3 / 3
// (Golub and Van Loan, Matrix Computations).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/gradients/layer_calls.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace inverses_rules {
namespace {

// LAPACK factorises matrices up to this size without blocks (ilaenv). For
// these, the call costs as much as the operations.
constexpr int64_t kLeastRows = 64;
constexpr char kChange[] = "solving with one factor";

struct Case {
  size_t step = 0;
  RowId row = kNone;    // the inverse, or the first op
  RowId other = kNone;  // determinant of a matrix of that size
  bool pseudo = false;
  bool constant = false;  // nothing in the step makes or changes the matrix
  // It is constant, and an earlier op of the step has factorised it as well.
  bool again = false;
  Dims dims = {};
};

bool IsInverse(std::string_view name) {
  return IsAnyOf(name, {"linalg_inv", "linalg_inv_ex", "inverse"});
}
bool IsPseudo(std::string_view name) {
  return IsAnyOf(name, {"linalg_pinv", "pinverse"});
}
bool IsDeterminant(std::string_view name) {
  return IsAnyOf(name,
                 {"logdet", "slogdet", "linalg_slogdet", "det", "linalg_det"});
}
bool IsSolve(std::string_view name) {
  return IsAnyOf(name, {"linalg_solve", "linalg_solve_ex", "linalg_cholesky",
                        "linalg_cholesky_ex", "cholesky", "linalg_lu_factor",
                        "linalg_lu_factor_ex"});
}

bool IsFactorisation(std::string_view name) {
  return IsAnyOf(name, {"linalg_cholesky_ex", "linalg_lu_factor_ex",
                        "linalg_ldl_factor_ex"});
}
// Solves with a factor that it is given.
bool TakesFactor(std::string_view name) {
  return IsAnyOf(name, {"cholesky_solve", "linalg_lu_solve", "lu_solve",
                        "linalg_solve_triangular", "triangular_solve"});
}

bool IsDecomposition(std::string_view name) {
  return IsAnyOf(name, {"linalg_eigh", "linalg_eig", "linalg_svd", "svd",
                        "linalg_qr", "linalg_matrix_exp", "matrix_exp"});
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Case> Find() {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      return At(ops, i);
    });
  }

 private:
  std::string_view NameOf(RowId row) const {
    return PlainNameOf(m_.trace, row);
  }

  std::optional<Case> At(std::span<const RowId> ops, size_t i) {
    const RowId row = ops[i];
    const std::string_view name = NameOf(row);
    const bool inverts = IsInverse(name), pseudo = IsPseudo(name);
    if (!inverts && !pseudo && !IsSolve(name) && !IsDecomposition(name)) {
      return {};
    }
    const std::vector<RowId> nodes = m_.backward.Of(m_.trace.ops()[row]);
    // The gradient of lstsq computes the pseudo-inverse anyway.
    if (pseudo && !nodes.empty()) return {};
    Case one{.row = row, .pseudo = pseudo, .dims = DimsOf(m_.trace, row, 0)};
    if (one.dims.size() < 2 ||
        std::min(one.dims.back(), one.dims[one.dims.size() - 2]) < kLeastRows) {
      return {};
    }
    one.constant = !MatrixHasGradient(row, nodes, one.dims) &&
                   StaysTheSame(ops, i, one.dims);
    one.again =
        one.constant && std::ranges::any_of(ops.first(i), [&](RowId earlier) {
          return m_.trace.ops()[earlier].name == m_.trace.ops()[row].name &&
                 DimsOf(m_.trace, earlier, 0) == one.dims;
        });
    if (IsDecomposition(name)) {
      return one.constant ? std::optional(one) : std::nullopt;
    }
    if (inverts || pseudo) {
      // The pseudo-inverse of [n, m] is [m, n].
      Dims made = one.dims;
      std::swap(made[made.size() - 1], made[made.size() - 2]);
      if (!OnlyMultiplied(ops, i, made)) return {};
    }
    if (!pseudo) one.other = DeterminantBeside(ops, i, one.dims);
    if (one.other == kNone && !inverts && !pseudo && !one.constant) return {};
    return one;
  }

  // True if the `nodes` of `row` make a gradient of its matrix, of size `dims`.
  // Those of a solve may only make one of the right-hand side.
  bool MatrixHasGradient(RowId row, const std::vector<RowId>& nodes,
                         const Dims& dims) const {
    if (!IsAnyOf(NameOf(row), {"linalg_solve", "linalg_solve_ex"})) {
      return !nodes.empty();
    }
    return std::ranges::any_of(nodes, [&](RowId node) {
      return std::ranges::any_of(m_.tree.inside(node), [&](RowId inner) {
        return IsProduct(NameOf(inner)) &&
               ResultDims(m_.trace, inner).value_or(dims) == dims;
      });
    });
  }

  // True if the matrix that ops[at] takes, of size `dims`, stays the same: no
  // other op of the step makes or changes a tensor of that size (products may
  // take one, and may take the result of ops[at]), and no such tensor is
  // trained.
  bool StaysTheSame(std::span<const RowId> ops, size_t at, const Dims& dims) {
    // Batches are data, and so are the features of a regression: these change.
    if (dims.size() != 2 || dims[0] != dims[1]) return false;
    for (size_t i = 0; i < ops.size(); ++i) {
      const RowId row = ops[i];
      if (i == at) continue;
      if (!TakesDims(m_.trace, row, dims)) {
        // It makes such a tensor, takes it from a larger one, or may do so.
        const std::optional<Dims> result = ResultDims(m_.trace, row);
        if (result == dims ||
            (i < at && (MayMake(m_.trace, row, dims) ||
                        (!result && HasSide(row, dims[0]))))) {
          return false;
        }
        continue;
      }
      if (m_.tree.traits(row).bookkeeping) continue;
      const std::string_view name = NameOf(row);
      if (!IsProduct(name) && !IsSolve(name) && !IsDeterminant(name) &&
          !IsInverse(name)) {
        return false;
      }
    }
    if (!gradients_) gradients_.emplace(m_);
    // A trained matrix changes after each step.
    if (gradients_->KeptAmong(0, kNone, dims) > 0) return false;
    // Hooks, and optimizers of the program's own, may change it in backward.
    return std::ranges::none_of(
        m_.tree.of_thread(m_.steps.thread), [&](RowId row) {
          const std::string_view name = NameOf(row);
          return m_.tree.in_backward(row) &&
                 m_.trace.ops()[row].kind != OpKind::kBackward &&
                 !m_.tree.traits(row).bookkeeping && !IsProduct(name) &&
                 !TakesFactor(name) && !TakesFactor(NameOfCaller(row)) &&
                 TakesDims(m_.trace, row, dims);
        });
  }

  std::string_view NameOfCaller(RowId row) const {
    const RowId caller = m_.trace.ops()[row].parent;
    return caller == kNone ? std::string_view() : NameOf(caller);
  }

  // True if `row` takes a tensor with a side of this length, as cov() does.
  bool HasSide(RowId row, int64_t length) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    return inputs != kNone &&
           std::ranges::any_of(m_.trace.op_inputs()[inputs].arguments,
                               [&](const Argument& one) {
                                 return std::ranges::find(one.dims, length) !=
                                        one.dims.end();
                               });
  }

  // True if only products, and factorisations of the original matrix, take a
  // matrix of the size that ops[i] makes.
  bool OnlyMultiplied(std::span<const RowId> ops, size_t i,
                      const Dims& made) const {
    bool multiplied = false;
    for (++i; i < ops.size(); ++i) {
      if (!TakesDims(m_.trace, ops[i], made)) continue;
      const std::string_view name = NameOf(ops[i]);
      multiplied |= IsProduct(name);
      if (!IsProduct(name) && !IsDeterminant(name) && !IsSolve(name)) {
        return false;
      }
    }
    return multiplied;
  }

  // Returns the nearest determinant of a matrix of that size, with no op in
  // between that makes another such matrix; kNone if there is none.
  RowId DeterminantBeside(std::span<const RowId> ops, size_t at,
                          const Dims& dims) const {
    const auto is_one = [&](RowId row) {
      return IsDeterminant(NameOf(row)) && DimsOf(m_.trace, row, 0) == dims;
    };
    for (size_t i = at + 1; i < ops.size(); ++i) {
      if (is_one(ops[i])) return ops[i];
      if (ResultDims(m_.trace, ops[i]) == dims) break;
    }
    for (size_t i = at; i-- > 0;) {
      if (is_one(ops[i])) return ops[i];
      if (ResultDims(m_.trace, ops[i]) == dims) break;
    }
    return kNone;
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

std::string NameAt(const AnalysisContext& m, RowId row) {
  return std::string(m.trace.name(m.trace.ops()[row].name));
}

constexpr char kOnce[] =
    "if the matrix is the same in each step, do this once, before training, "
    "and keep the result in a buffer (register_buffer)";

// Describes a matrix that is factorised several times in a step.
void DescribeAgain(const AnalysisContext& m, const Case& one, double calls,
                   double ns, Finding& finding) {
  finding.evidence = NameAt(m, one.row) + " factorises a matrix of " +
                     InBrackets(one.dims) + " " +
                     Count(std::llround(calls), "time") +
                     " per step, and no recorded op makes, changes or "
                     "trains such a matrix: it seems to be the same each time. "
                     "Factorising takes " +
                     Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption = "the factor is kept, and solving takes as long as now";
  finding.fix_python =
      "factorise once, before the loop or before training: LU, pivots = "
      "torch.linalg.lu_factor(A), then torch.linalg.lu_solve(LU, pivots, b); "
      "where A is symmetric positive definite, L = torch.linalg.cholesky(A) "
      "and torch.cholesky_solve(b, L)";
  finding.fix_cpp =
      "factorise once, before the loop or before training: "
      "torch::linalg_lu_factor(A), then torch::linalg_lu_solve(LU, pivots, b); "
      "where A is symmetric positive definite, torch::linalg_cholesky(A) and "
      "torch::cholesky_solve(b, L)";
  finding.wrong_if =
      "each call takes another matrix of that size, or the program changes it "
      "where ops are not recorded";
}

void DescribeConstant(const AnalysisContext& m, const Case& one, double ns,
                      Finding& finding) {
  finding.confidence = Confidence::kHint;
  finding.evidence = NameAt(m, one.row) + " takes a matrix of " +
                     InBrackets(one.dims) +
                     " that no recorded op makes, changes or trains. If it is "
                     "the same in each step, so is the result. This takes " +
                     Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption = "the result is kept";
  finding.fix_cpp = finding.fix_python = kOnce;
  finding.wrong_if =
      "the matrix is another one in each step, as data are, or the program "
      "changes it where ops are not recorded";
}

void Describe(const AnalysisContext& m, const Case& one, double ns,
              Finding& finding) {
  const bool inverts = !one.pseudo && IsInverse(PlainNameOf(m.trace, one.row));
  finding.evidence =
      NameAt(m, one.row) + " takes a matrix of " + InBrackets(one.dims);
  if (inverts || one.pseudo) {
    finding.evidence += ", and what it makes is only multiplied";
  }
  if (one.other != kNone) {
    finding.evidence += std::string(inverts ? "; " : ", and ") +
                        NameAt(m, one.other) +
                        " factorises a matrix of the same size, too";
  }
  finding.evidence += inverts || one.pseudo
                          ? ". With the backward pass of the " +
                                std::string(one.pseudo ? "pseudo-" : "") +
                                "inverse, this takes "
                          : ". The determinant alone takes ";
  finding.evidence += Milliseconds(ns * 1e-6) + " per step.";
  if (one.pseudo) {
    finding.assumption = "at best: solving takes no time";
    finding.fix_python =
        "torch.linalg.lstsq(A, b).solution in place of torch.linalg.pinv(A) @ "
        "b";
    finding.fix_cpp =
        "std::get<0>(torch::linalg_lstsq(A, b)) in place of "
        "torch::linalg_pinv(A).mm(b)";
    finding.wrong_if =
        "the columns of the matrix depend on each other (on a GPU lstsq needs "
        "full rank)";
    return;
  }
  finding.assumption =
      one.other == kNone ? "at best: solving, with its gradient, takes no time"
      : inverts
          ? "at best: a factor takes no time, and its gradient takes as long "
            "as that of the determinant"
          : "at best: the determinant is read off the factor at no cost";
  if (one.other != kNone) {
    finding.fix_python =
        "one factor serves both: L = torch.linalg.cholesky(K); x = "
        "torch.cholesky_solve(b, L); logdet = 2 * L.diagonal(dim1=-2, "
        "dim2=-1).log().sum(-1) (torch.linalg.lu_factor and lu_solve where K "
        "is "
        "not symmetric)";
    finding.fix_cpp =
        "one factor serves both: auto L = torch::linalg_cholesky(K); auto x = "
        "torch::cholesky_solve(b, L); auto logdet = 2 * L.diagonal(0, -2, "
        "-1).log().sum(-1)";
    finding.wrong_if =
        "the two matrices are different ones, or other code reads the inverse";
  } else {
    finding.fix_python =
        "torch.linalg.solve(K, b) in place of torch.linalg.inv(K) @ b; for a "
        "symmetric positive definite K, torch.cholesky_solve(b, "
        "torch.linalg.cholesky(K))";
    finding.fix_cpp =
        "torch::linalg_solve(K, b) in place of torch::linalg_inv(K).mm(b); for "
        "a symmetric positive definite K, torch::cholesky_solve(b, "
        "torch::linalg_cholesky(K))";
    finding.wrong_if = "other code reads the inverse itself";
  }
}

// Appends the ops inside of a solve that factorise; all of `row` if there are
// none.
void AppendFactorisations(const AnalysisContext& m, RowId row,
                          std::vector<ShortenedOp>& ops) {
  const size_t before = ops.size();
  for (RowId inner : m.tree.inside(row)) {
    if (IsFactorisation(PlainNameOf(m.trace, inner))) ops.push_back({inner, 0});
  }
  if (ops.size() == before) AppendWithNodes(m, row, 0, ops);
}

Verdict CheckExplicitInverse(const AnalysisContext& m) {
  const std::vector<Case> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  for (const Case& one : found) {
    const std::string_view name = PlainNameOf(m.trace, one.row);
    if (IsInverse(name) || one.pseudo) {
      AppendWithNodes(m, one.row, 0, ops);
    } else if (one.constant) {
      AppendFactorisations(m, one.row, ops);
    }
    // The inverse's gradient solves for n columns, and so does that of any
    // other factor.
    if (one.other != kNone) ops.push_back({one.other, 0});
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const auto length = [&](const Case& one) {
    return m.trace.ops()[one.row].end_ns - m.trace.ops()[one.row].begin_ns;
  };
  // Several calls in a step say more than one.
  const Case& largest = *std::ranges::max_element(
      found, {},
      [&](const Case& one) { return std::pair(one.again, length(one)); });
  Finding finding =
      FindingAbout(m, largest.row, largest.row, NameAt(m, largest.row));
  const bool only_constant = largest.constant && !largest.pseudo &&
                             largest.other == kNone &&
                             !IsInverse(PlainNameOf(m.trace, largest.row));
  if (only_constant && largest.again) {
    const double calls = static_cast<double>(std::ranges::count(
                             found, largest.dims, &Case::dims)) /
                         static_cast<double>(m.steps.steady.size());
    DescribeAgain(m, largest, calls, all.ns, finding);
  } else if (only_constant) {
    DescribeConstant(m, largest, all.ns, finding);
  } else {
    Describe(m, largest, all.ns, finding);
    if (largest.constant) {
      finding.fix_python += std::string("; ") + kOnce;
      finding.fix_cpp += std::string("; ") + kOnce;
    }
  }
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = all.saved_ns,
                    .trials = {all.edit},
                    .at_most = only_constant && !largest.again
                                   ? FindingSeverity::kLow
                                   : FindingSeverity::kCritical});
}

constexpr Rule kRules[] = {
    {.id = "explicit-inverse",
     .question = "Are matrices inverted only to be multiplied, or factorised "
                 "more often than needed?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckExplicitInverse,
     .reference = "PyTorch documentation, torch.linalg.inv: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.linalg.inv.html",
     .detect =
         "in two thirds of the steps, an inverse or pseudo-inverse of 64 rows "
         "or more is made, and only products take a matrix of its size "
         "afterwards; or a determinant and an inverse, a solve or a Cholesky "
         "factor take matrices of one size, and nothing in between makes "
         "another one; or a square matrix is factorised or decomposed several "
         "times (if only once, this is a hint and low at most) that has no "
         "gradient, that no recorded op makes or changes, and of whose size "
         "nothing is trained",
     .avoid = "other ops read the inverse (its diagonal), a pseudo-inverse has "
              "a gradient (that of lstsq makes one, too), or the matrices are "
              "small (LAPACK works on up to 64 rows without blocks)",
     .fix_cpp = "torch::linalg_cholesky and torch::cholesky_solve; "
                "torch::linalg_solve; torch::linalg_lstsq; once, before "
                "training",
     .fix_python = "torch.linalg.cholesky and torch.cholesky_solve; "
                   "torch.linalg.solve; torch.linalg.lstsq; once, before "
                   "training"}};

}  // namespace
}  // namespace inverses_rules

extern const std::span<const Rule> kInverses = inverses_rules::kRules;

}  // namespace stepscope
