// Are all pairs of rows combined in one large tensor, only to be summed up?
// Source: the documentation of torch.cdist, which computes Euclidean distances
// with a matrix product.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "evidence/program/op_shapes.h"
#include "evidence/program/shortened_ops.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"
#include "words/quantities.h"

namespace stepscope {
namespace broadcasts_rules {
namespace {

// A smaller result stays in a core's second-level cache (1 to 2 MiB on current
// server CPUs), where passing over it costs little.
constexpr int64_t kLeastBytes = 1 << 20;
constexpr char kChange[] = "pairs by matrix products";
// These ops both broadcast and sum up.
constexpr std::string_view kCosine = "cosine_similarity";
constexpr std::string_view kPairwise = "pairwise_distance";

struct Contraction {
  RowId combines = kNone;  // the op that broadcasts
  std::vector<RowId> ops = {};
  std::vector<int64_t> left = {}, right = {}, made = {};  // sizes
  int64_t bytes = 0;                                      // of the result
  std::string_view name = "";                             // of `combines`
  bool distributes = false;  // one factor is a sum of the result's size
  bool IsWhole() const { return name != "sub" && name != "mul"; }
  bool IsDistance() const { return name == "sub" || name == kPairwise; }
};

// Returns the dimensions that a sum, mean or norm reduces, counted from the
// first; none if it reduces all dimensions or they are unknown.
std::set<size_t> ReducedDims(const Trace& trace, RowId op, size_t rank) {
  std::set<size_t> dims;
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return dims;
  const std::vector<Argument>& arguments = trace.op_inputs()[inputs].arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!trace.name(arguments[i].concrete).starts_with("[")) continue;
    for (int64_t dim : ListArgument(trace, op, i)) {
      dims.insert(static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank)
                                              : dim));
    }
    break;
  }
  return dims;
}

// The same from the sizes of the result, for recordings without the values of
// arguments (torch before 2.1): the last dimension that is missing in
// `reduced`.
std::set<size_t> MissingDim(const Dims& whole, const Dims& reduced) {
  for (size_t dim = whole.size(); dim-- > 0;) {
    Dims left = whole;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(dim));
    if (left == reduced) return {dim};
  }
  return {};
}

class Finder {
 public:
  explicit Finder(const AnalysisContext& context) : m_(context) {}

  std::vector<Contraction> Find() const {
    std::vector<Contraction> found;
    if (m_.steps.thread == kNone) return found;
    std::vector<RowId> ops;  // outermost ops that compute
    for (RowId row : m_.tree.of_thread(m_.steps.thread)) {
      const Op& op = m_.trace.ops()[row];
      if (op.parent == kNone && !m_.tree.traits(row).bookkeeping &&
          InSteadyStep(m_.steps, op.begin_ns)) {
        ops.push_back(row);
      }
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      Contraction one;
      if (!m_.tree.in_backward(ops[i]) &&
          Combines(ops[i], i > 0 ? ops[i - 1] : kNone, one) &&
          (one.IsWhole() || IsSummedUp(std::span(ops).subspan(i + 1), one))) {
        found.push_back(std::move(one));
      }
    }
    return found;
  }

 private:
  // The sizes of the result of an op on two tensors. left, right: that argument
  // is spread over a dimension of the other.
  struct Broadcast {
    Dims made = {};
    bool left = false, right = false;
  };
  Broadcast BroadcastOf(RowId row) const {
    const Dims& left = DimsOf(m_.trace, row, 0);
    const Dims& right = DimsOf(m_.trace, row, 1);
    const size_t rank = std::max(left.size(), right.size());
    std::vector<int64_t> a(rank - left.size(), 1), b(rank - right.size(), 1);
    a.insert(a.end(), left.begin(), left.end());
    b.insert(b.end(), right.begin(), right.end());
    Broadcast result;
    for (size_t i = 0; i < rank; ++i) {
      result.left |= a[i] == 1 && b[i] > 1;
      result.right |= b[i] == 1 && a[i] > 1;
      result.made.push_back(std::max(a[i], b[i]));
    }
    return result;
  }

  // True if `row` combines each row of one tensor with each row of another. One
  // of them may be a sum of such rows that `previous` made: q * (k + a).
  bool Combines(RowId row, RowId previous, Contraction& one) const {
    const std::string_view name = PlainNameOf(m_.trace, row);
    if (!IsAnyOf(name, {"sub", "mul", kCosine, kPairwise})) return false;
    const TensorShape left = TensorArgument(m_.trace, row, 0);
    const TensorShape right = TensorArgument(m_.trace, row, 1);
    if (!left.known() || !right.known()) return false;
    one.combines = row;
    one.name = name;
    one.ops = {row};
    one.left = left.dims;
    one.right = right.dims;
    const Broadcast spread = BroadcastOf(row);
    one.made = spread.made;
    one.bytes = BytesOf(m_.trace, {one.made, left.type});
    if (one.bytes < kLeastBytes) return false;
    if (!spread.left || !spread.right) {
      one.distributes = name == "mul" && (spread.left || spread.right) &&
                        previous != kNone && SpreadsInto(previous, one.made);
      if (one.distributes) one.ops.insert(one.ops.begin(), previous);
      return one.distributes;
    }
    if (!one.IsWhole()) return true;
    const std::optional<size_t> dim = SummedDim(row, one.made.size());
    return dim && IsShared(one, *dim);
  }

  // True if `row` adds each row of one tensor to each row of another, with a
  // result of the sizes `made`.
  bool SpreadsInto(RowId row, const Dims& made) const {
    if (!IsAnyOf(PlainNameOf(m_.trace, row), {"add", "sub"})) return false;
    const Broadcast spread = BroadcastOf(row);
    return spread.left && spread.right && spread.made == made;
  }

  // Returns the dimension that an op which both combines and sums up sums over.
  std::optional<size_t> SummedDim(RowId row, size_t rank) const {
    if (PlainNameOf(m_.trace, row) == kPairwise) return rank - 1;
    constexpr size_t kDim = 2;  // for cosine_similarity; 1 by default
    return DimArgument(m_.trace, row, kDim, rank, 1);
  }

  // True if the next ops, after at most a square, sum up the result of `one`
  // over a dimension that both tensors have. `next` is in time order.
  bool IsSummedUp(std::span<const RowId> next, Contraction& one) const {
    bool squares = false;
    for (size_t i = 0; i < next.size(); ++i) {
      const RowId row = next[i];
      const TensorShape input = TensorArgument(m_.trace, row, 0);
      // Any other op may need the whole tensor.
      if (!input.known() || input.dims != one.made) return false;
      const std::string_view name = PlainNameOf(m_.trace, row);
      one.ops.push_back(row);
      if (IsAnyOf(name, {"sum", "mean", "norm", "linalg_vector_norm"})) {
        std::set<size_t> dims = ReducedDims(m_.trace, row, one.made.size());
        if (dims.empty() && !HasValues(row) && i + 1 < next.size()) {
          dims = MissingDim(one.made, DimsOf(m_.trace, next[i + 1], 0));
        }
        return !dims.empty() && std::ranges::all_of(dims, [&](size_t dim) {
          return IsShared(one, dim);
        });
      }
      // Products are summed up directly, without a square.
      if (squares || one.name != "sub") return false;
      const bool by_itself =
          name == "mul" && TensorArgument(m_.trace, row, 1).dims == one.made;
      if (!by_itself && !IsAnyOf(name, {"abs", "pow", "square"})) return false;
      squares = true;
    }
    return false;
  }

  // True if the value of any argument of `row` was recorded.
  bool HasValues(RowId row) const {
    const RowId inputs = m_.trace.ops()[row].inputs;
    return inputs != kNone &&
           std::ranges::any_of(m_.trace.op_inputs()[inputs].arguments,
                               [&](const Argument& one) {
                                 return !m_.trace.name(one.concrete).empty();
                               });
  }

  static bool IsShared(const Contraction& one, size_t dim) {
    const auto size = [&](const std::vector<int64_t>& dims) -> int64_t {
      const size_t missing = one.made.size() - dims.size();
      return dim < missing ? 1 : dims[dim - missing];
    };
    return dim < one.made.size() && one.made[dim] > 1 &&
           size(one.left) == size(one.right);
  }

  const AnalysisContext& m_;
};

Verdict CheckBroadcastContraction(const AnalysisContext& m) {
  const std::vector<Contraction> found = Finder(m).Find();
  if (found.empty()) return Clean();
  std::vector<ShortenedOp> ops;
  bool trains = false;
  for (const Contraction& one : found) {
    for (RowId row : one.ops) {
      trains |= AppendWithNodes(m, row, 0, ops);
    }
  }
  const ShortenedOps all = ShortenOps(m, std::move(ops), kChange);
  const Contraction& largest =
      *std::ranges::max_element(found, {}, &Contraction::bytes);
  Finding finding = FindingAbout(m, largest.combines, largest.ops.back(),
                                 "the ops from the broadcast to the sum");
  const bool distance = largest.IsDistance();
  finding.evidence =
      "Tensors of " + InBrackets(largest.left) + " and " +
      InBrackets(largest.right) + " are " +
      (distance ? "subtracted" : "multiplied") +
      (largest.IsWhole() ? " by " + std::string(largest.name) : "") +
      ", which makes one of " + InBrackets(largest.made) + " (" +
      Bytes(static_cast<double>(largest.bytes)) +
      "), and that is only summed up over a dimension that both have. Such "
      "ops" +
      (trains ? ", with their backward passes," : "") + " take " +
      Milliseconds(all.ns * 1e-6) + " per step.";
  finding.assumption = "at best: a matrix product makes the sums at no cost";
  finding.fix_python =
      largest.name == kCosine
          ? "F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T"
      : distance
          ? "torch.cdist(x, y), or squared distances as x.square().sum(1)[:, "
            "None] + y.square().sum(1) - 2 * x @ y.T"
      : largest.distributes
          ? "distribute the product: q @ k.transpose(-2, -1) + "
            "torch.einsum(\"bhid,ijd->bhij\", q, a) in place of (q[..., None, "
            ":] * (k[..., None, :, :] + a)).sum(-1)"
          : "a matrix product, x @ y.T, or torch.einsum";
  finding.fix_cpp =
      largest.name == kCosine
          ? "F::normalize(x).mm(F::normalize(y).t()), of rows"
      : distance ? "torch::cdist(x, y), or squared distances as "
                   "x.square().sum(1).unsqueeze(1) + y.square().sum(1) - 2 * "
                   "x.mm(y.t())"
      : largest.distributes
          ? "distribute the product: a matrix product with each term of the sum"
          : "a matrix product, x.mm(y.t()), or torch::einsum";
  finding.wrong_if =
      "the differences are so small beside the numbers themselves that the "
      "product loses them, or other code reads the large tensor";
  return FireBound(std::move(finding), all.saved_ns, all.edit);
}

constexpr Rule kRules[] = {
    {.id = "broadcast-contraction",
     .question = "Are all pairs of rows combined in one large tensor, only to "
                 "be summed up?",
     .needs = {Kind::kOp, Kind::kOpShapes},
     .causes = {Cause::kCompute},
     .check = &CheckBroadcastContraction,
     .reference = "PyTorch documentation, torch.cdist: "
                  "https://docs.pytorch.org/docs/stable/generated/"
                  "torch.cdist.html",
     .detect =
         "two tensors that each lack a dimension of the other are subtracted "
         "or multiplied, the result has 1 MiB or more, and the next ops square "
         "it (or take its magnitude) and sum it up over a dimension that both "
         "tensors have (one of two factors may be a sum that was broadcast "
         "just before); or cosine_similarity or pairwise_distance does all of "
         "that in one op",
     .avoid = "only one tensor is broadcast, another op uses the result in "
              "between (relu), or all of it is summed up",
     .fix_cpp = "torch::cdist, or a matrix product",
     .fix_python = "torch.cdist, or a matrix product"}};

}  // namespace
}  // namespace broadcasts_rules

extern const std::span<const Rule> kBroadcasts = broadcasts_rules::kRules;

}  // namespace stepscope
