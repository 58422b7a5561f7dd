// Are matrices whose elements are nearly all zero multiplied as dense ones?
// One-hot rows look up rows of weights or sum up groups; adjacency matrices sum
// over neighbours. Sources: PyTorch documentation,
// torch.nn.functional.embedding and torch.sparse; T. Kipf and M. Welling 2017,
// "Semi-Supervised Classification with Graph Convolutional Networks", section
// 3.2: the product with the adjacency matrix costs as many operations as there
// are edges.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
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
namespace sparse_products_rules {
namespace {

// A lookup moves 8 bytes per number. In that time a core does some 25
// operations (two 8-wide multiply-adds per cycle, 10 to 15 bytes per cycle from
// memory). A product takes 2 operations per class.
constexpr int64_t kLeastClasses = 64;
constexpr char kChange[] = "lookups in place of one-hot products";
// A matrix counts as sparse if at most this share of its elements is written.
// With more, a dense product is as fast. If the number of written elements is
// not recorded, writing one is assumed to take at least kWriteNs (a random
// access, with one of two cores).
constexpr double kMostWritten = 0.05;
constexpr double kWriteNs = 2;
constexpr char kSparseChange[] = "sparse in place of dense products";
// A product with fewer rows takes about as long as calling the sparse product.
constexpr int64_t kLeastNodes = 256;

struct Lookup {
  size_t step = 0;
  RowId makes = kNone, product = kNone;
  std::vector<RowId> ops = {};  // that a lookup replaces
  Dims rows = {};               // sizes of the one-hot rows
  bool groups = false;          // the product sums up the rows of each class
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Lookup> Find() const {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      const Dims rows = OneHotRows(ops, i);
      return rows.size() < 2 || rows.back() < kLeastClasses
                 ? std::nullopt
                 : Multiplied(ops, i, rows);
    });
  }

 private:
  std::string_view NameOf(RowId row) const {
    return PlainNameOf(m_.trace, row);
  }

  // Returns the sizes of the result of ops[i] if its last dimension is one-hot.
  Dims OneHotRows(std::span<const RowId> ops, size_t i) const {
    const RowId row = ops[i];
    if (NameOf(row) == "one_hot") {
      Dims rows = DimsOf(m_.trace, row, 0);
      const int64_t classes = NumberArgument(m_.trace, row, 1).value_or(-1);
      rows.push_back(classes > 0 ? classes : Classes(ops, i, rows));
      return rows;
    }
    // zeros(n, classes).scatter_(1, index, 1)
    if (NameOf(row) != "scatter" || !DimsOf(m_.trace, row, 3).empty()) {
      return {};
    }
    const Dims& rows = DimsOf(m_.trace, row, 0);
    const Dims& index = DimsOf(m_.trace, row, 2);
    if (rows.empty() || index.size() != rows.size() || index.back() != 1 ||
        DimArgument(m_.trace, row, 1, rows.size()) != rows.size() - 1) {
      return {};
    }
    return rows;
  }

  // Returns the number of classes for a one_hot without that argument, judged
  // by the next op that takes such rows; -1 if there is none.
  int64_t Classes(std::span<const RowId> ops, size_t i,
                  const Dims& rows) const {
    for (++i; i < ops.size(); ++i) {
      const Dims& taken = DimsOf(m_.trace, ops[i], 0);
      if (taken.size() == rows.size() + 1 &&
          std::equal(rows.begin(), rows.end(), taken.begin())) {
        return taken.back();
      }
    }
    return -1;
  }

  // Returns the lookup that the one-hot `rows` of ops[i] stand for, if only
  // products and sums take them.
  std::optional<Lookup> Multiplied(std::span<const RowId> ops, size_t i,
                                   const Dims& rows) const {
    Lookup one{.makes = ops[i], .ops = {ops[i]}, .rows = rows};
    const Dims turned = Turned(rows);
    bool turns = false;
    for (++i; i < ops.size(); ++i) {
      const RowId row = ops[i];
      const bool takes = TakesDims(m_.trace, row, rows);
      const bool takes_turned = turns && TakesDims(m_.trace, row, turned);
      if (!takes && !takes_turned) continue;
      const std::string_view name = NameOf(row);
      if (IsProduct(name)) {
        if (!IsOperand(row, rows, turned, takes_turned)) return {};
        one.groups |= takes_turned;
        if (one.product == kNone) one.product = row;
        one.ops.push_back(row);
      } else if (IsAnyOf(name, {"to", "_to_copy", "type_as"})) {
        one.ops.push_back(row);
      } else if (takes && IsAnyOf(name, {"t", "numpy_T", "transpose", "mT",
                                         "permute"})) {
        turns = true;
      } else if (!takes || !IsAnyOf(name, {"sum", "mean"})) {
        return {};
      }
    }
    if (one.product == kNone) return {};
    return one;
  }

  static Dims Turned(const Dims& rows) {
    Dims turned = rows;
    std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
    return turned;
  }

  // True if `row` multiplies by the rows, or by their transpose, from the left.
  bool IsOperand(RowId row, const Dims& rows, const Dims& turned,
                 bool is_turned) const {
    const std::string_view name = NameOf(row);
    const size_t at = LeftFactor(name);
    return DimsOf(m_.trace, row, at) == (is_turned ? turned : rows);
  }

  const AnalysisContext& m_;
};

Verdict CheckOneHotProduct(const AnalysisContext& m) {
  const std::vector<Lookup> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Lookup& one : found) {
    for (RowId row : one.ops) trains |= AppendWithNodes(m, row, 0, ops);
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Lookup& largest = *std::ranges::max_element(
      found, {}, [&](const Lookup& one) { return one.rows.back(); });
  const Op& first = m.trace.ops()[largest.makes];
  const Op& product = m.trace.ops()[largest.product];
  Finding finding =
      FindingAbout(m, largest.makes, largest.product,
                   "the ops from the one-hot rows to the product");
  finding.evidence =
      std::string(m.trace.name(first.name)) + " makes rows of " +
      std::to_string(largest.rows.back()) + " classes, " +
      InBrackets(largest.rows) + ", in which one number is not zero, and " +
      std::string(m.trace.name(product.name)) + " multiplies them. This" +
      (trains ? ", with the backward pass," : "") + " takes " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = largest.groups
                           ? "at best: sums by an index cost nothing"
                           : "at best: looking up rows costs nothing";
  if (largest.groups) {
    finding.fix_python =
        "x.new_zeros(classes, x.size(1)).index_add(0, index, x) in place of "
        "F.one_hot(index, classes).float().T @ x; torch.bincount(index) counts";
    finding.fix_cpp =
        "x.new_zeros({classes, x.size(1)}).index_add(0, index, x) in place of "
        "the product with one-hot rows";
  } else {
    finding.fix_python =
        "F.embedding(index, weight), or weight[index], in place of "
        "F.one_hot(index, classes).float() @ weight; nn.Embedding in place of "
        "nn.Linear (its weight is turned: linear.weight.T[index] + bias)";
    finding.fix_cpp =
        "torch::embedding(weight, index) in place of the product with one-hot "
        "rows";
  }
  finding.wrong_if =
      "several numbers of a row may be set, or be other than one";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

// A product with a constant square matrix on the left.
struct Spread {
  size_t step = 0;
  RowId product = kNone;
  int64_t nodes = 0;                // rows of the matrix
  std::vector<RowId> filling = {};  // ops that write the matrix
};

bool MakesZeros(std::string_view name) {
  return IsAnyOf(name, {"zeros", "new_zeros", "zeros_like"});
}
bool FillsByIndex(std::string_view name) {
  return IsAnyOf(name, {"index_put", "scatter", "scatter_add"});
}
// True for ops that keep zeros zero, or only count them.
bool KeepsZeros(std::string_view name) {
  return IsAnyOf(name, {"mul", "div", "to", "_to_copy", "clone", "t",
                        "transpose", "sum", "fill_diagonal"});
}

// Finds matrices that get no gradient, that only such products take, and that
// no op of the step makes, except by writing into zeros by index.
class ConstantMatrices {
 public:
  explicit ConstantMatrices(const AnalysisContext& context) : m_(context) {}

  std::vector<Spread> Find() {
    std::vector<Spread> found;
    for (const ForwardStep& step : m_.forward) {
      std::vector<Spread> here;
      std::set<int64_t> others;  // squares that are used otherwise
      const std::map<int64_t, std::vector<RowId>> filled = FilledByIndex(step);
      for (RowId row : step.ops) {
        const int64_t size = LeftSquare(row);
        // The product must have a node, but none that computes a gradient of
        // the matrix. Without a node, it may be in a pass without gradients,
        // where all weights look constant.
        if (size >= kLeastNodes && HasNodes(row) &&
            !HasMatrixGradient(row, size) && !MultipliesParameter(row)) {
          const auto filling = filled.find(size);
          here.push_back({step.step, row, size,
                          filling == filled.end() ? std::vector<RowId>()
                                                  : filling->second});
        } else {
          AddSquares(row, filled, others);
        }
      }
      std::erase_if(
          here, [&](const Spread& one) { return others.contains(one.nodes); });
      found.insert(found.end(), here.begin(), here.end());
    }
    return found;
  }

 private:
  // Returns the size of the square matrix with which `row` multiplies features,
  // if there are fewer features than rows; 0 for other ops.
  int64_t LeftSquare(RowId row) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (!IsAnyOf(name, {"mm", "matmul", "addmm", "spmm"})) return 0;
    const size_t at = LeftFactor(name);
    const Dims& matrix = DimsOf(m_.trace, row, at);
    const Dims& features = DimsOf(m_.trace, row, at + 1);
    return matrix.size() == 2 && features.size() == 2 &&
                   matrix[0] == matrix[1] && features[0] == matrix[1] &&
                   features[1] < matrix[1] && !IsSparse(row)
               ? matrix[0]
               : 0;
  }

  // True if the product is of a sparse matrix. aten::_nnz returns its number of
  // elements.
  bool IsSparse(RowId row) const {
    return std::ranges::any_of(m_.tree.inside(row), [&](RowId inner) {
      const std::string_view name = m_.trace.name(m_.trace.ops()[inner].name);
      return Contains(name, "sparse") || name == "aten::_nnz";
    });
  }

  bool HasNodes(RowId row) {
    if (!gradients_) gradients_.emplace(m_);
    return !gradients_->NodesOf(row).empty();
  }

  // True if backward computes a gradient of the matrix.
  bool HasMatrixGradient(RowId row, int64_t size) const {
    const Dims square = {size, size};
    for (RowId node : gradients_->NodesOf(row)) {
      for (RowId inner : m_.tree.inside(node)) {
        if (IsProduct(PlainNameOf(m_.trace, inner)) &&
            ResultDims(m_.trace, inner) == square) {
          return true;
        }
      }
    }
    return false;
  }

  // True if the right operand is a parameter, which makes the left one a batch.
  bool MultipliesParameter(RowId row) const {
    const size_t at = LeftFactor(PlainNameOf(m_.trace, row)) + 1;
    return gradients_->KeptAmong(0, kNone, DimsOf(m_.trace, row, at)) > 0;
  }

  // Returns, by size, the ops that make and write square matrices which start
  // as zeros and are then written by index.
  std::map<int64_t, std::vector<RowId>> FilledByIndex(
      const ForwardStep& step) const {
    std::map<int64_t, std::vector<RowId>> zeros, filled;
    std::map<int64_t, double> written;
    for (RowId row : step.ops) {
      const std::string_view name = PlainNameOf(m_.trace, row);
      if (MakesZeros(name)) {
        const Dims made =
            name == "zeros_like"
                ? DimsOf(m_.trace, row, 0)
                : ListArgument(m_.trace, row, name == "zeros" ? 0 : 1);
        if (IsSquare(made)) zeros[made.back()].push_back(row);
      } else if (FillsByIndex(name)) {
        const Dims& dims = DimsOf(m_.trace, row, 0);
        const auto from = zeros.find(IsSquare(dims) ? dims.back() : 0);
        if (from == zeros.end()) continue;
        std::vector<RowId>& ops = filled[dims.back()];
        if (ops.empty()) ops = from->second;
        ops.push_back(row);
        written[dims.back()] += WrittenBy(row);
      }
    }
    std::erase_if(filled, [&](const auto& entry) {
      const auto size = static_cast<double>(entry.first);
      return written[entry.first] > kMostWritten * size * size;
    });
    return filled;
  }

  // Returns how many elements index_put or scatter writes: as many as it is
  // given, or, if that is unknown, the most that its time allows.
  double WrittenBy(RowId row) const {
    const bool puts = PlainNameOf(m_.trace, row) == "index_put";
    for (size_t at :
         puts ? std::vector<size_t>{2} : std::vector<size_t>{2, 3}) {
      const Dims& given = DimsOf(m_.trace, row, at);
      if (!given.empty()) return static_cast<double>(ElementsIn(given));
    }
    const Op& op = m_.trace.ops()[row];
    return static_cast<double>(op.end_ns - op.begin_ns) / kWriteNs;
  }

  static bool IsSquare(const Dims& dims) {
    return dims.size() == 2 && dims[0] == dims[1];
  }

  void AddSquares(RowId row,
                  const std::map<int64_t, std::vector<RowId>>& filled,
                  std::set<int64_t>& squares) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    const bool sparse =
        MakesZeros(name) || FillsByIndex(name) || KeepsZeros(name);
    const auto add = [&](const Dims& dims) {
      if (dims.size() >= 2 && dims.back() == dims[dims.size() - 2] &&
          !(sparse && filled.contains(dims.back()))) {
        squares.insert(dims.back());
      }
    };
    if (const std::optional<Dims> made = ResultDims(m_.trace, row)) add(*made);
    const RowId inputs = m_.trace.ops()[row].inputs;
    if (inputs == kNone) return;
    for (const Argument& one : m_.trace.op_inputs()[inputs].arguments) {
      add(one.dims);
    }
  }

  const AnalysisContext& m_;
  std::optional<LayerGradients> gradients_;  // made when first needed
};

Verdict CheckSparseKeptDense(const AnalysisContext& m) {
  if (m.steps.thread == kNone) return Clean();
  const std::vector<Spread> found = ConstantMatrices(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  std::vector<ShortenedOp> ops;
  std::set<RowId> filling;  // several products may take one matrix
  bool trains = false;
  for (const Spread& one : found) {
    trains |= AppendWithNodes(m, one.product, 0, ops);
    for (RowId row : one.filling) filling.insert(row);
  }
  for (RowId row : filling) ops.push_back({row, 0});
  const ShortenedOps all = ShortenOps(m, std::move(ops), kSparseChange);
  const Spread& largest = *std::ranges::max_element(found, {}, &Spread::nodes);
  const std::string size = std::to_string(largest.nodes);
  Finding finding =
      FindingAbout(m, largest.product, largest.product, "the product");
  finding.confidence = Confidence::kHint;
  finding.evidence =
      std::string(m.trace.name(m.trace.ops()[largest.product].name)) +
      " multiplies features of " + size +
      " rows from the left with a matrix of [" + size + ", " + size +
      (largest.filling.empty()
           ? "] that is neither trained nor made in the step, "
           : "] that the step fills with zeros and then writes by index, ") +
      MeanCount(static_cast<double>(found.size()) /
                    static_cast<double>(m.steps.steady.size()),
                "time") +
      " per step. This" + (trains ? ", with the backward pass," : "") +
      " takes " + Milliseconds(all.ns * 1e-6) +
      " per step. If it is the adjacency matrix of a graph, nearly all of it "
      "is zero; a recording has no values.";
  finding.assumption =
      "at best: the products with what is not zero take no "
      "time";
  finding.fix_python =
      "count (matrix != 0).float().mean(); if that is a few per cent or less, "
      "keep the matrix sparse: matrix = matrix.to_sparse_csr(), matrix @ x as "
      "before; or sum over the edges, torch.zeros_like(x).index_add(0, target, "
      "x[source])";
  finding.fix_cpp =
      "if a few per cent of it or less are not zero, keep the matrix sparse: "
      "matrix.to_sparse_csr(); or sum over the edges with index_add";
  finding.wrong_if =
      "more than a few per cent of the matrix are not zero, as of a constant "
      "transform (a DCT, a filter)";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "sparse-kept-dense",
     .question = "Is an adjacency matrix multiplied as a dense one?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckSparseKeptDense,
     .reference = "PyTorch documentation, torch.sparse: "
                  "https://docs.pytorch.org/docs/stable/sparse.html",
     .detect =
         "in two thirds of the steps, features are multiplied from the left "
         "with a square matrix of 256 rows or more that no op of the step "
         "makes or takes otherwise (or that begins as zeros, of which 5 % at "
         "most are written by index), and that gets no gradient; a hint, "
         "because a recording has no values",
     .avoid = "the matrix is trained, or made in the step (attention, a "
              "kernel), or there are at least as many features as rows",
     .fix_cpp = "to_sparse_csr(); index_add over the edges",
     .fix_python = "to_sparse_csr(); index_add over the edges"},
    {.id = "one-hot-product",
     .question = "Does a product with one-hot rows do what a lookup does?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckOneHotProduct,
     .reference = "PyTorch documentation, torch.nn.functional.embedding: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.nn.functional.embedding.html",
     .detect =
         "in two thirds of the steps, aten::one_hot, or aten::scatter_ of one "
         "number per row, makes rows of 64 classes or more, and only matrix "
         "products and sums take them",
     .avoid = "other ops take them (a loss, a concatenation with other "
              "features), or there are few classes",
     .fix_cpp = "torch::embedding; index_add for sums of groups",
     .fix_python = "F.embedding or weight[index]; index_add for sums of "
                   "groups"}};

}  // namespace
}  // namespace sparse_products_rules

extern const std::span<const Rule> kSparseProducts =
    sparse_products_rules::kRules;

}  // namespace stepscope
