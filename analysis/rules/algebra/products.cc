// Do products and sums over neighbours run in an order that needs more work
// than another order with the same result? An upsampling also makes such sums.
// Source: Cormen et al., Introduction to Algorithms, matrix-chain
// multiplication; PyTorch documentation, torch.linalg.multi_dot.
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
namespace products_rules {
namespace {

// The most that may remain of the operations, or of the width that is summed
// up. Products of other sizes, such as small ones, may reach only half the
// rate.
constexpr double kMostLeft = 0.5;
constexpr char kChange[] = "products in the cheaper order";

// The first op and the product after it, in one step.
struct Order {
  enum class Kind : uint8_t { kSums, kUpsampling, kProducts };
  Kind kind = Kind::kSums;
  size_t step = 0;
  std::vector<ShortenedOp> ops = {};  // as the other order leaves them
  RowId first = kNone, then = kNone;
  Dims made = {};             // by the first op
  int64_t width = 0;          // after the product; not for kProducts
  double now = 0, other = 0;  // operations of both orders; for kProducts
  // False if the next step may take the first op's result, because it takes a
  // tensor of that size and the result has no gradient.
  bool sure = true;
};

// Batches of [m, k] times [k, n]. If all have the same right operand, they
// count as rows of a single product.
struct Sizes {
  double batch = 1, m = 0, n = 0, k = 0;
  double operations() const { return 2 * batch * m * n * k; }
};

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Order> Find() const {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      return At(ops, i);
    });
  }

 private:
  std::optional<Order> At(std::span<const RowId> ops, size_t i) const {
    const RowId row = ops[i];
    if (SumsRows(row)) return SumOfRows(ops, i);
    if (Contains(NameOf(row), "upsample_")) return Upsampled(ops, i);
    if (!IsProduct(NameOf(row))) return {};
    if (std::optional<Order> one = Chain(ops, i)) return one;
    if (!Spreads(row)) return {};
    return Projected(ops, i, {row}, *ResultDims(m_.trace, row));
  }

  std::string_view NameOf(RowId row) const {
    return PlainNameOf(m_.trace, row);
  }

  bool HasGradient(RowId row) const {
    const Op& op = m_.trace.ops()[row];
    return !m_.backward.Of(op).empty();
  }

  bool IsOfOthers(RowId row) const {
    return !m_.trace.name(m_.trace.ops()[row].name).starts_with("aten::") &&
           !m_.tree.traits(row).bookkeeping;
  }

  // True for ops that sum up rows by an index.
  bool SumsRows(RowId row) const {
    if (IsAnyOf(NameOf(row), {"index_add", "scatter_add"})) return true;
    const RowId inputs = m_.trace.ops()[row].inputs;
    if (NameOf(row) != "scatter_reduce" || inputs == kNone) return false;
    return std::ranges::any_of(
        m_.trace.op_inputs()[inputs].arguments, [&](const Argument& one) {
          return IsAnyOf(m_.trace.name(one.concrete), {"sum", "mean"});
        });
  }

  // True for a product with a square matrix on the left, such as that of a
  // graph. The result has the sizes of the right operand.
  bool Spreads(RowId row) const {
    if (!IsAnyOf(NameOf(row), {"mm", "matmul", "_sparse_mm"})) return false;
    const Dims& left = DimsOf(m_.trace, row, 0);
    const Dims& right = DimsOf(m_.trace, row, 1);
    return left.size() == 2 && right.size() >= 2 && left[0] == left[1] &&
           right[right.size() - 2] == left[1] &&
           ResultDims(m_.trace, row) == right;
  }

  // True if `row` multiplies or divides each row of a tensor of size `dims` by
  // one number.
  bool Scales(RowId row, const Dims& dims) const {
    if (!IsAnyOf(NameOf(row), {"mul", "div"})) return false;
    const Dims& a = DimsOf(m_.trace, row, 0);
    const Dims& b = DimsOf(m_.trace, row, 1);
    if (a != dims && b != dims) return false;
    const Dims& other = a == dims ? b : a;
    return other.empty() || (other.back() == 1 && other.size() == dims.size());
  }

  // True for a sum over the last dimension that keeps it with size 1.
  bool SumsColumns(RowId row) const {
    if (NameOf(row) != "sum") return false;
    const Dims& dims = DimsOf(m_.trace, row, 0);
    const std::vector<int64_t> over = ListArgument(m_.trace, row, 1);
    return over.size() == 1 &&
           (over[0] == -1 || over[0] + 1 == std::ssize(dims)) &&
           FlagArgument(m_.trace, row, 2);
  }

  // Returns the width that `row` projects a tensor of size `dims` to; 0 if
  // `row` is not a product of that tensor with weights.
  int64_t WidthBehind(RowId row, const Dims& dims) const {
    const std::string_view name = NameOf(row);
    if (!IsAnyOf(name, {"linear", "addmm", "mm", "matmul"})) return 0;
    const size_t at = LeftFactor(name);
    const Dims& weight = DimsOf(m_.trace, row, at + 1);
    if (DimsOf(m_.trace, row, at) != dims || weight.size() != 2) return 0;
    return name == "linear" ? weight[0] : weight[1];
  }

  // True if `row` computes with a view of a tensor of size `dims`, as far as
  // sizes tell: aten::gelu may take [6144, 4096] as [24, 256, 4096]. A view
  // itself changes nothing.
  bool MayTakeViewOf(RowId row, const Dims& dims) const {
    if (m_.tree.traits(row).bookkeeping) return false;
    const std::span<const RowId> inside = m_.tree.inside(row);
    // Without its own arguments, those of the ops that it calls count.
    const auto known = std::ranges::find_if(
        inside, [&](RowId at) { return HasArguments(m_.trace, at); });
    if (known == inside.end()) {
      return HasGradient(row) || IsElementwise(NameOf(row));
    }
    const size_t count = *known == row ? 1 : inside.size();
    return std::ranges::any_of(inside.first(count), [&](RowId at) {
      return TakesElements(m_.trace, at, ElementsIn(dims));
    });
  }

  // Returns the products that take the result of ops[i], of size `dims`.
  // `scales` receives the ops that scale its rows before that. Empty if any
  // other op takes a tensor of that size, or, before the first product, a view
  // of it. With `until_next`, only ops before the next op that makes such a
  // tensor count.
  std::vector<RowId> Takers(std::span<const RowId> ops, size_t i,
                            const Dims& dims, bool until_next,
                            std::vector<RowId>& scales) const {
    std::vector<RowId> takers;
    const Op& first = m_.trace.ops()[ops[i]];
    for (++i; i < ops.size(); ++i) {
      const RowId row = ops[i];
      const Op& op = m_.trace.ops()[row];
      // The same op in the next layer.
      if (op.name == first.name && op.inputs == first.inputs &&
          first.inputs != kNone) {
        break;
      }
      if (TakesDims(m_.trace, row, dims)) {
        if (takers.empty() &&
            (Scales(row, dims) || (!until_next && SumsColumns(row)))) {
          scales.push_back(row);
          continue;
        }
        if (!IsProduct(NameOf(row))) return {};
        takers.push_back(row);
      } else if (takers.empty() && MayTakeViewOf(row, dims)) {
        return {};
      }
      if (until_next && ResultDims(m_.trace, row) == dims) break;
    }
    return takers;
  }

  // Checks for gathered rows that are summed up, with the sums projected to
  // fewer columns.
  std::optional<Order> SumOfRows(std::span<const RowId> ops, size_t i) const {
    const RowId row = ops[i];
    const Dims& made = DimsOf(m_.trace, row, 0);
    const Dims& rows = DimsOf(m_.trace, row, 3);
    if (made.size() != 2 || rows.size() != 2 || rows[1] != made[1]) return {};
    std::vector<RowId> chain;
    if (!AreGathered(ops, i, rows, made, chain)) return {};
    chain.push_back(row);
    return Projected(ops, i, std::move(chain), made);
  }

  // Checks whether the result of ops[i] is projected to at most half its width.
  // Until then, `chain` works on the full width.
  std::optional<Order> Projected(std::span<const RowId> ops, size_t i,
                                 std::vector<RowId> chain,
                                 const Dims& made) const {
    Order one{.first = ops[i], .made = made};
    const std::vector<RowId> takers = Takers(ops, i, made, true, chain);
    // At best, work on fewer columns takes no time.
    for (RowId row : chain) one.ops.push_back({row, 0});
    for (RowId taker : takers) {
      const int64_t width = WidthBehind(taker, made);
      if (width == 0) return {};
      one.width += width;
    }
    if (takers.empty() || static_cast<double>(one.width) >
                              kMostLeft * static_cast<double>(made.back())) {
      return {};
    }
    one.then = takers.front();
    return one;
  }

  // Returns the number of channels that a convolution with a one-pixel kernel
  // makes of a tensor of size `dims`; 0 if `row` is no such convolution.
  int64_t ChannelsBehind(RowId row, const Dims& dims) const {
    if (!IsAnyOf(NameOf(row), {"conv1d", "conv2d", "conv3d"})) return 0;
    const Dims& weight = DimsOf(m_.trace, row, 1);
    const auto all_are = [&](size_t argument, int64_t value) {
      const std::vector<int64_t> list = ListArgument(m_.trace, row, argument);
      return !list.empty() &&
             std::ranges::count(list, value) == std::ssize(list);
    };
    const bool fits = DimsOf(m_.trace, row, 0) == dims &&
                      weight.size() == dims.size() && weight[1] == dims[1] &&
                      ElementsIn({weight.begin() + 2, weight.end()}) == 1 &&
                      all_are(3, 1) && all_are(4, 0);  // stride, padding
    return fits ? weight[0] : 0;
  }

  // Returns the sizes that an upsampling makes. If the program gave a factor,
  // the op that it calls has them.
  std::optional<Dims> UpsampledDims(RowId row) const {
    Dims made = DimsOf(m_.trace, row, 0);
    if (made.size() <= 2) return {};
    for (RowId at : m_.tree.inside(row)) {
      const std::vector<int64_t> sizes = ListArgument(m_.trace, at, 1);
      if (sizes.size() + 2 != made.size()) continue;
      std::ranges::copy(sizes, made.begin() + 2);
      return made;
    }
    return {};
  }

  // Checks for an upsampling whose result only convolutions with one-pixel
  // kernels take, which make at most half the channels.
  std::optional<Order> Upsampled(std::span<const RowId> ops, size_t i) const {
    const RowId row = ops[i];
    const std::optional<Dims> made = UpsampledDims(row);
    const Dims& source = DimsOf(m_.trace, row, 0);
    if (!made || ElementsIn(*made) <= ElementsIn(source)) return {};
    const double shrunk = static_cast<double>(ElementsIn(source)) /
                          static_cast<double>(ElementsIn(*made));
    Order one{.kind = Order::Kind::kUpsampling, .first = row, .made = *made};
    for (++i; i < ops.size(); ++i) {
      if (!TakesDims(m_.trace, ops[i], *made)) {
        if (one.ops.empty() && MayTakeViewOf(ops[i], *made)) return {};
        continue;
      }
      const int64_t channels = ChannelsBehind(ops[i], *made);
      if (channels == 0) return {};
      if (one.ops.empty()) one.then = ops[i];
      one.ops.push_back({ops[i], shrunk});
      one.width += channels;
    }
    const double left =
        static_cast<double>(one.width) / static_cast<double>((*made)[1]);
    if (one.ops.empty() || left > kMostLeft) return {};
    one.ops.push_back({row, left});
    return one;
  }

  // True if `rows` are gathered from a tensor with no more rows than `made`
  // has, and at most scaled after that. Adds the ops that make them to `chain`.
  bool AreGathered(std::span<const RowId> ops, size_t i, const Dims& rows,
                   const Dims& made, std::vector<RowId>& chain) const {
    while (i-- > 0) {
      const RowId row = ops[i];
      const std::string_view name = NameOf(row);
      const std::optional<Dims> result = ResultDims(m_.trace, row);
      // The number of indices of aten::index is not recorded.
      if ((name == "index_select" && result == rows) || name == "index") {
        const Dims& source = DimsOf(m_.trace, row, 0);
        if (source.size() != 2 || source[1] != rows[1]) continue;
        chain.push_back(row);
        return source[0] <= made[0];
      }
      if (Scales(row, rows)) {
        chain.push_back(row);
      } else if (result == rows || TakesDims(m_.trace, row, rows)) {
        return false;
      }
    }
    return false;
  }

  std::optional<Sizes> SizesOf(RowId row) const {
    const std::string_view name = NameOf(row);
    const size_t at = LeftFactor(name);
    const Dims& left = DimsOf(m_.trace, row, at);
    const Dims& right = DimsOf(m_.trace, row, at + 1);
    if (left.empty() || right.empty() || ElementsIn(left) == 0) return {};
    Sizes sizes;
    sizes.k = static_cast<double>(left.back());
    if (right.size() > 2) {
      if (left.size() != right.size() ||
          !std::equal(left.begin(), left.end() - 2, right.begin())) {
        return {};
      }
      sizes.batch =
          static_cast<double>(ElementsIn({left.begin(), left.end() - 2}));
    }
    sizes.m = static_cast<double>(ElementsIn(left)) / sizes.k / sizes.batch;
    sizes.n =
        right.size() == 1
            ? 1
            : static_cast<double>(name == "linear" ? right[0] : right.back());
    return sizes;
  }

  // Checks for (A B) C where A (B C) needs fewer operations, or the other way
  // round.
  std::optional<Order> Chain(std::span<const RowId> ops, size_t i) const {
    const RowId row = ops[i];
    const std::optional<Dims> made = ResultDims(m_.trace, row);
    const std::optional<Sizes> first = SizesOf(row);
    if (!made || made->size() < 2 || !first) return {};
    std::vector<RowId> scales;
    const std::vector<RowId> takers = Takers(ops, i, *made, false, scales);
    if (takers.size() != 1) return {};
    // The arguments and results of functions from the program or from other
    // libraries are often not recorded, for example those of a fused
    // activation.
    for (size_t k = i + 1; ops[k] != takers[0]; ++k) {
      if (IsOfOthers(ops[k])) return {};
    }
    const std::optional<Sizes> then = SizesOf(takers[0]);
    if (!then) return {};
    const std::optional<double> other =
        OtherOrder(*first, *then, takers[0], *made);
    const double now = first->operations() + then->operations();
    if (!other || *other > kMostLeft * now) return {};
    const double left = *other / now;
    std::vector<ShortenedOp> shortened = {{row, left}, {takers[0], left}};
    // Ops that sum up columns and divide by the sums also work on fewer
    // columns.
    if (std::ranges::any_of(scales,
                            [&](RowId op) { return SumsColumns(op); })) {
      if (DimsOf(m_.trace, takers[0], 0) != *made) return {};
      for (RowId op : scales) shortened.push_back({op, left});
    }
    return Order{.kind = Order::Kind::kProducts,
                 .ops = std::move(shortened),
                 .first = row,
                 .then = takers[0],
                 .made = *made,
                 .now = now,
                 .other = *other,
                 .sure = !TakesDims(m_.trace, row, *made) || HasGradient(row)};
  }

  // Returns the number of operations of the other order. `first` makes a tensor
  // of size `made` from [m, k] and [k, n], and `row` multiplies that tensor,
  // with sizes `then`.
  std::optional<double> OtherOrder(const Sizes& first, const Sizes& then,
                                   RowId row, const Dims& made) const {
    const std::string_view name = NameOf(row);
    const size_t at = LeftFactor(name);
    const bool left = DimsOf(m_.trace, row, at) == made;
    if (left == (DimsOf(m_.trace, row, at + 1) == made)) return {};
    const double batch = std::max(first.batch, then.batch);
    if (left) {  // A (B C) with C of [n, q]
      return 2 * batch * first.k * first.n * then.n +
             2 * first.batch * first.m * first.k * then.n;
    }
    const double m = static_cast<double>(made[made.size() - 2]);
    // (C A) B with C of [q, m]; for linear, (C B^T) A^T with C of [q, n]
    const double inner = name == "linear" ? first.n : m;
    const double outer = name == "linear" ? m : first.n;
    return 2 * batch * then.m * first.k * (inner + outer);
  }

  const AnalysisContext& m_;
};

std::string NameAt(const AnalysisContext& m, RowId row) {
  return std::string(m.trace.name(m.trace.ops()[row].name));
}

void DescribeSums(const AnalysisContext& m, const Order& one, bool trains,
                  double ns, Finding& finding) {
  finding.evidence = NameAt(m, one.first) + " makes sums over neighbours of " +
                     InBrackets(one.made) + ", and " + NameAt(m, one.then) +
                     " then only projects them to a width of " +
                     std::to_string(one.width) +
                     ". What works on the full width before" +
                     (trains ? ", with its backward passes," : "") + " takes " +
                     Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption = "at best: sums of the smaller width cost nothing";
  finding.fix_python =
      "project first, then sum over neighbours: A @ linear(x) in place of "
      "linear(A @ x), with the bias added behind the sum";
  finding.fix_cpp =
      "project first, then sum over neighbours: "
      "zeros.index_add(0, to, linear(x).index_select(0, from))";
  if (!trains) {
    finding.fix_python +=
        "; or, if x never changes, compute the sums once before training";
    finding.fix_cpp +=
        "; or, if x never changes, compute the sums once before training";
  }
  finding.wrong_if =
      "something that is not linear follows the sum, or other code reads it";
}

void DescribeUpsampling(const AnalysisContext& m, const Order& one, bool trains,
                        double ns, Finding& finding) {
  finding.evidence =
      NameAt(m, one.first) + " enlarges to " + InBrackets(one.made) + ", and " +
      NameAt(m, one.then) + ", with a kernel of one pixel, then makes " +
      Count(one.width, "channel") + " of the " + std::to_string(one.made[1]) +
      ". Both" + (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the convolution takes time as its pixels, and enlarging as its "
      "channels";
  finding.fix_python =
      "convolve first, then enlarge the few channels: "
      "F.interpolate(conv(x), size) in place of conv(F.interpolate(x, size)); "
      "a convolution with a kernel of one pixel and an interpolation may swap "
      "places, and the result is the same";
  finding.fix_cpp =
      "convolve first, then enlarge the few channels: "
      "torch::nn::functional::interpolate(conv(x), options)";
  finding.wrong_if = "other code reads the enlarged tensor";
}

void DescribeProducts(const AnalysisContext& m, const Order& one, bool trains,
                      double ns, Finding& finding) {
  finding.evidence =
      NameAt(m, one.first) + " makes a matrix of " + InBrackets(one.made) +
      ", which only " + NameAt(m, one.then) + " takes. The other order needs " +
      Percent(one.other / one.now) + " of the operations. Such products" +
      (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(ns * 1e-6) + " per step.";
  finding.assumption =
      "at best: the products of the other order run at the same rate";
  finding.fix_python =
      "change the brackets: A @ (B @ v) in place of A @ B @ v, q @ (k.T @ v) "
      "in place of (q @ k.T) @ v, (x @ U) @ V in place of x @ (U @ V); "
      "torch.linalg.multi_dot chooses the order";
  finding.fix_cpp =
      "change the brackets: A.mm(B.mm(v)) in place of A.mm(B).mm(v); "
      "torch::linalg_multi_dot chooses the order";
  finding.wrong_if = "other code reads the product of the first two";
}

Verdict CheckProductOrder(const AnalysisContext& m) {
  const std::vector<Order> found = Finder(m).Find();
  if (!RecursInMostSteps(m.steps, found)) return Clean();
  const auto length = [&](const Order& one) {
    int64_t ns = 0;
    for (const ShortenedOp& op : one.ops) {
      ns += m.trace.ops()[op.op].end_ns - m.trace.ops()[op.op].begin_ns;
    }
    return ns;
  };
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Order& one : found) {
    for (const ShortenedOp& op : one.ops) {
      trains |= AppendWithNodes(m, op.op, op.left, ops);
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Order& longest = *std::ranges::max_element(found, {}, length);
  struct Words {
    const char* example;
    decltype(&DescribeSums) describe;
  };
  constexpr Words kWords[] = {
      // by kind
      {"the ops from the sum to the product", &DescribeSums},
      {"the ops from the upsampling to the convolution", &DescribeUpsampling},
      {"the two products", &DescribeProducts}};
  const Words& words = kWords[static_cast<size_t>(longest.kind)];
  Finding finding = FindingAbout(m, longest.first, longest.then, words.example);
  if (!longest.sure) finding.confidence = Confidence::kHint;
  words.describe(m, longest, trains, all.ns, finding);
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "product-order",
     .question = "Would products, sums over neighbours or upsampling need less "
                 "work in another order?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckProductOrder,
     .reference = "PyTorch documentation, torch.linalg.multi_dot: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.linalg.multi_dot.html",
     .detect =
         "in two thirds of the steps, gathered rows are summed up by an index, "
         "a square matrix is multiplied with features, or a picture is "
         "enlarged, and what comes out is only projected (by a convolution "
         "with a kernel of one pixel), to at most half the width; or what a "
         "matrix product makes is only multiplied once more, and the other "
         "order needs at most half of the operations",
     .avoid = "another op takes a tensor of that size, or may take a view of "
              "it, such as an activation, or the gathered rows are changed by "
              "more than a factor for each",
     .fix_cpp = "project first, then sum or enlarge; A.mm(B.mm(v))",
     .fix_python = "project first, then sum or enlarge; A @ (B @ v)"}};

}  // namespace
}  // namespace products_rules

extern const std::span<const Rule> kProducts = products_rules::kRules;

}  // namespace stepscope
