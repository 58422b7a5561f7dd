#include "evidence/attention/written_attention.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "evidence/program/plain_name.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/steady_steps.h"

namespace stepscope {
namespace {

// Scaling, all kinds of masks and dropout take at most a dozen ops. A product
// further away has nothing to do with the softmax.
constexpr size_t kMostBetween = 16;

// What scaled_dot_product_attention can also do to scores: scale them, add or
// apply a mask (which some programs make on the spot), cast them, and drop
// elements. An aten::dropout that calls nothing is switched off.
constexpr auto kBetween = std::to_array<std::string_view>(
    {"add",           "all",         "any",        "arange",  "bitwise_and",
     "bitwise_not",   "bitwise_or",  "cat",        "clamp",   "clone",
     "contiguous",    "copy",        "div",        "dropout", "eq",
     "fill",          "full",        "ge",         "gt",      "le",
     "logical_and",   "logical_not", "logical_or", "lt",      "masked_fill",
     "mul",           "ne",          "neg",        "ones",    "rsub",
     "scalar_tensor", "sub",         "tril",       "type_as", "triu",
     "where",         "zero"});

// What ops are for in attention, by NameId.
enum class Role : uint8_t {
  kOther,
  kProduct,
  kSoftmax,
  kBetween,
  kDropout,
  kProjection  // makes the values, in programs that make them late
};

std::vector<Role> RolesOf(const Trace& trace) {
  std::vector<Role> roles(trace.name_count(), Role::kOther);
  for (NameId id = 0; id < roles.size(); ++id) {
    const std::string_view name = PlainName(trace.name(id));
    if (name == "bmm" || name == "baddbmm") {
      roles[id] = Role::kProduct;
    } else if (name == "_softmax") {
      roles[id] = Role::kSoftmax;
    } else if (name == "mm" || name == "addmm" || name == "linear") {
      roles[id] = Role::kProjection;
    } else if (name == "native_dropout" || name == "bernoulli" ||
               name == "_fused_dropout") {
      roles[id] = Role::kDropout;
    } else if (std::ranges::find(kBetween, name) != kBetween.end()) {
      roles[id] = Role::kBetween;
    }
  }
  return roles;
}

// True if `row` is part of a linear layer, judged by the outermost op around
// it.
bool IsOfLayer(const Trace& trace, RowId row) {
  return IsAnyOf(
      PlainName(trace.name(trace.ops()[OutermostOf(trace, row)].name)),
      {"linear", "addmm"});
}

// Returns the ancestor of `row` that `caller` called.
RowId CallBelow(const Trace& trace, RowId row, RowId caller) {
  while (row != kNone && trace.ops()[row].parent != caller) {
    if (trace.ops()[row].parent == kNone) break;
    row = trace.ops()[row].parent;
  }
  return row;
}

// Returns the innermost op around both; kNone if there is none.
RowId CommonCaller(const Trace& trace, RowId a, RowId b) {
  for (RowId one = trace.ops()[a].parent; one != kNone;
       one = trace.ops()[one].parent) {
    for (RowId other = trace.ops()[b].parent; other != kNone;
         other = trace.ops()[other].parent) {
      if (one == other) return one;
    }
  }
  return kNone;
}

// False if recorded sizes show that the first product does not make the input
// of the softmax, or that the second does not use its result.
bool SizesFit(const Trace& trace, const WrittenAttention& one) {
  const TensorShape in = TensorArgument(trace, one.softmax, 0);
  const MatmulShape scores = CostOf(trace, one.scores).matmul;
  const MatmulShape values = CostOf(trace, one.values).matmul;
  if (!in.known() || scores.m <= 0 || values.m <= 0) return true;
  if (in.dims.size() < 2) return false;
  const int64_t keys = in.dims.back();
  return scores.n == keys && values.k == keys &&
         scores.batch * scores.m * scores.n == ElementsOf(in) &&
         values.batch * values.m * values.k == ElementsOf(in);
}

// True if the node sums up a gradient: then a mask with a gradient was
// broadcast over the scores.
bool TrainsTheMask(const AnalysisContext& m, RowId node) {
  const auto name_of = [&](RowId row) {
    return m.trace.name(m.trace.ops()[row].name);
  };
  return Contains(name_of(node), "AddBackward") &&
         std::ranges::any_of(m.tree.inside(node), [&](RowId row) {
           return name_of(row) == "aten::sum";
         });
}

// True if `row` applies the same mask of [length, length] to all heads and
// samples, which hides later positions. Padding masks differ from sample to
// sample.
bool MasksTheFuture(const Trace& trace, RowId row, int64_t length) {
  const RowId inputs = trace.ops()[row].inputs;
  if (inputs == kNone || !IsAnyOf(PlainName(trace.name(trace.ops()[row].name)),
                                  {"add", "masked_fill", "where"})) {
    return false;
  }
  return std::ranges::any_of(
      trace.op_inputs()[inputs].arguments, [&](const Argument& one) {
        return one.dims.size() >= 2 && length > 1 &&
               one.dims.back() == length && one.dims.end()[-2] == length &&
               ElementsIn(one.dims) == length * length;
      });
}

// True for nodes of views, whose cost is negligible.
bool IsLayoutNode(std::string_view name) {
  for (std::string_view part :
       {"View", "Expand", "Transpose", "Permute", "Reshape", "TBackward",
        "Slice", "Select", "Squeeze"}) {
    if (Contains(name, part)) return true;
  }
  return false;
}

class AttentionFinder {
 public:
  AttentionFinder(const AnalysisContext& context, std::vector<Role> roles)
      : context_(context), trace_(context.trace), roles_(std::move(roles)) {}

  std::vector<WrittenAttention> Find(RowId thread) const {
    std::vector<RowId> leaves;
    for (RowId row : context_.tree.of_thread(thread)) {
      if (context_.tree.computes(row) && !context_.tree.in_backward(row) &&
          !context_.tree.traits(row).bookkeeping) {
        // An op that was interrupted looks as if it computed besides calling
        // ops. Drop it.
        while (!leaves.empty() && RoleOf(leaves.back()) == Role::kOther &&
               Calls(leaves.back(), row)) {
          leaves.pop_back();
        }
        leaves.push_back(row);
      }
    }
    std::vector<WrittenAttention> found;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (RoleOf(leaves[i]) != Role::kSoftmax ||
          !InSteadyStep(context_.steps, trace_.ops()[leaves[i]].begin_ns)) {
        continue;
      }
      WrittenAttention one{.softmax = leaves[i]};
      if (Surround(leaves, i, one) && SizesFit(trace_, one)) {
        AddBackward(one);
        Describe(one);
        AddRestOfFallback(leaves, one);
        found.push_back(std::move(one));
      }
    }
    return found;
  }

 private:
  bool Calls(RowId outer, RowId inner) const {
    while (inner != kNone && inner != outer) inner = trace_.ops()[inner].parent;
    return inner == outer;
  }

  Role RoleOf(RowId row) const { return roles_[trace_.ops()[row].name]; }

  // Finds the two products around the softmax at `i`, and the ops between them.
  bool Surround(std::span<const RowId> leaves, size_t i,
                WrittenAttention& one) const {
    size_t first = i, last = i;
    while (one.scores == kNone) {
      if (first == 0 || i - first > kMostBetween) return false;
      if (IsProduct(leaves[--first], leaves[i])) {
        one.scores = leaves[first];
      } else if (!MayLieBetween(leaves[first])) {
        return false;
      }
    }
    while (one.values == kNone) {
      if (++last >= leaves.size() || last - i > kMostBetween) return false;
      if (IsProduct(leaves[last], leaves[i])) {
        one.values = leaves[last];
      } else if (!MayLieBetween(leaves[last])) {
        return false;
      }
    }
    const RowId caller = CommonCaller(trace_, one.scores, one.values);
    for (size_t k = first + 1; k < last; ++k) {
      RowId call = CallBelow(trace_, leaves[k], caller);
      // Copies inside a product's call prepare its operands. In the second
      // product, they may also convert the attention weights, for example to
      // cast them.
      if (call == CallBelow(trace_, one.values, caller) &&
          TensorArgument(trace_, leaves[k], 0).dims ==
              TensorArgument(trace_, one.softmax, 0).dims) {
        call = leaves[k];
      } else if (call == CallBelow(trace_, one.scores, caller) ||
                 call == CallBelow(trace_, one.values, caller) ||
                 RoleOf(call) == Role::kProjection) {
        continue;
      }
      one.drops |= RoleOf(leaves[k]) == Role::kDropout;
      if (one.between.empty() || one.between.back() != call) {
        one.between.push_back(call);
      }
    }
    for (RowId op = caller; op != kNone; op = trace_.ops()[op].parent) {
      if (trace_.name(trace_.ops()[op].name) ==
          "aten::_scaled_dot_product_attention_math") {
        one.fallback = op;
      }
    }
    return true;
  }

  // True for a batched product. For a single head of a single sample, also true
  // for a product of two matrices that is not part of a linear layer and has as
  // many scores per position as there are positions.
  bool IsProduct(RowId row, RowId softmax) const {
    if (RoleOf(row) != Role::kProjection) return RoleOf(row) == Role::kProduct;
    const TensorShape in = TensorArgument(trace_, softmax, 0);
    if (in.dims.size() != 2 || in.dims[0] != in.dims[1] ||
        IsOfLayer(trace_, row)) {
      return false;
    }
    const MatmulShape product = CostOf(trace_, row).matmul;
    return product.m == in.dims[0] &&
           (product.n == in.dims[1] || product.k == in.dims[1]);
  }

  bool MayLieBetween(RowId row) const {
    return RoleOf(row) == Role::kBetween || RoleOf(row) == Role::kDropout ||
           RoleOf(row) == Role::kProjection;
  }

  // True if an op between the products adds a tensor of the scores' full size
  // that has a gradient: a bias of relative positions. Both operands then have
  // the same sizes.
  bool AddsTrainedBias(const WrittenAttention& one) const {
    return std::ranges::any_of(one.between, [&](RowId row) {
      const Op& op = trace_.ops()[row];
      if (PlainName(trace_.name(op.name)) != "add" || op.inputs == kNone) {
        return false;
      }
      const TensorShape sum = TensorArgument(trace_, row, 0);
      const TensorShape scores = TensorArgument(trace_, one.softmax, 0);
      return sum.known() && ElementsOf(sum) == ElementsOf(scores) &&
             TensorArgument(trace_, row, 1) == sum &&
             !context_.backward.Of(op).empty();
    });
  }

  // Adds the backward nodes, which show whether the mask is trained.
  void AddBackward(WrittenAttention& one) const {
    one.trains_mask = AddsTrainedBias(one);
    const Op& scores = trace_.ops()[one.scores];
    const Op& values = trace_.ops()[one.values];
    std::vector<RowId> of_products = context_.backward.Of(scores);
    std::ranges::copy(context_.backward.Of(values),
                      std::back_inserter(of_products));
    const Op& first =
        one.fallback == kNone ? scores : trace_.ops()[one.fallback];
    const Op& last = one.fallback == kNone ? values : first;
    for (RowId node :
         context_.backward.Of(first.thread, {first.begin_ns, last.end_ns})) {
      const std::string_view name = trace_.name(trace_.ops()[node].name);
      if (Contains(name, "BmmBackward") || Contains(name, "bmmBackward") ||
          std::ranges::find(of_products, node) != of_products.end()) {
        one.backward_products.push_back(node);
      } else if (Contains(name, "mmBackward") || Contains(name, "MmBackward")) {
        continue;  // belongs to a projection
      } else if (TrainsTheMask(context_, node)) {
        one.trains_mask = true;
      } else if (!IsLayoutNode(name)) {
        one.backward.push_back(node);
      }
    }
  }

  // Adds what a fallback does before the first product and after the second:
  // it casts and copies tensors.
  void AddRestOfFallback(std::span<const RowId> leaves,
                         WrittenAttention& one) const {
    if (one.fallback == kNone) return;
    const std::vector<RowId> known = one.between;
    for (RowId row : leaves) {
      if (row != one.scores && row != one.values && Calls(one.fallback, row) &&
          std::ranges::none_of(known,
                               [&](RowId call) { return Calls(call, row); })) {
        one.between.push_back(row);
      }
    }
  }

  void Describe(WrittenAttention& one) const {
    const auto name = [&](RowId row) {
      return std::string(PlainName(trace_.name(trace_.ops()[row].name)));
    };
    one.chain = name(one.scores);
    for (RowId row : one.between) one.chain += " > " + name(row);
    one.chain += " > " + name(one.values);
    const TensorShape in = TensorArgument(trace_, one.softmax, 0);
    one.dims = in.dims;
    if (!in.known()) return;
    one.score_bytes = static_cast<double>(BytesOf(trace_, in));
    // With a single head and sample, a mask of this size may belong to that
    // sample.
    const int64_t length = in.dims.back();
    one.causal = ElementsOf(in) > length * length &&
                 std::ranges::any_of(one.between, [&](RowId row) {
                   return MasksTheFuture(trace_, row, length);
                 });
  }

  const AnalysisContext& context_;
  const Trace& trace_;
  std::vector<Role> roles_;
};

}  // namespace

std::vector<WrittenAttention> FindWrittenAttention(
    const AnalysisContext& context) {
  std::vector<Role> roles = RolesOf(context.trace);
  if (std::ranges::find(roles, Role::kSoftmax) == roles.end()) return {};
  const AttentionFinder finder(context, std::move(roles));
  std::vector<WrittenAttention> all;
  for (RowId thread = 0; thread < context.trace.threads().size(); ++thread) {
    for (WrittenAttention& one : finder.Find(thread)) {
      all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace stepscope
