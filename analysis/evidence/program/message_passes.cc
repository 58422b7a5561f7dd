#include "evidence/program/message_passes.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "evidence/program/op_shapes.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"

namespace stepscope {
namespace {

// With fewer edges per sum, the sums themselves are most of what a product
// moves. Our own choice.
constexpr int64_t kLeastEdgesPerSum = 2;

// Ops that sum up rows by an index, and the position of the rows among their
// arguments. Those of torch_scatter take the rows first, and make the sums.
struct ScatterOp {
  std::string_view name;  // as in PlainNameOf()
  size_t rows;
  bool takes_sums;  // first
};
constexpr ScatterOp kScatterOps[] = {
    {"index_add", 3, true},
    {"index_put", 2, true},
    {"scatter_add", 3, true},
    {"scatter_reduce", 3, true},
    {"segment_reduce", 0, false},
    {"torch_scatter::scatter_mean", 0, false},
    {"torch_scatter::scatter_sum", 0, false},
    {"torch_scatter::segment_mean_csr", 0, false},
    {"torch_scatter::segment_sum_csr", 0, false}};

class MessageFinder {
 public:
  explicit MessageFinder(const AnalysisContext& context) : m_(context) {}

  std::vector<MessagePass> Find() const {
    return FindAtOps(m_.forward, [&](std::span<const RowId> ops, size_t i) {
      return At(ops, i);
    });
  }

 private:
  std::string_view NameOf(RowId row) const {
    return PlainNameOf(m_.trace, row);
  }

  std::optional<MessagePass> At(std::span<const RowId> ops, size_t i) const {
    if (!Gathers(ops[i])) return {};
    MessagePass one{.gather = ops[i]};
    // torch.zeros_like(x).index_add(...) makes the zeros before x[source].
    if (i > 0 && MakesZeros(ops[i - 1])) one.zeroing.push_back(ops[i - 1]);
    const Dims message = MessageDims(ops[i]);
    for (++i; i < ops.size(); ++i) {
      const RowId row = ops[i];
      if (MakesZeros(row)) {
        one.zeroing.push_back(row);
        continue;
      }
      if (m_.tree.traits(row).bookkeeping) continue;
      if (const ScatterOp* op = ScatterOpOf(row)) {
        const Dims& rows = DimsOf(m_.trace, row, op->rows);
        if (message.empty() || ElementsIn(rows) == ElementsIn(message)) {
          one.scatter = row;
          AddSizes(*op, rows, one);
          break;
        }
      }
      if (!message.empty() && HasArguments(m_.trace, row) &&
          !TakesElements(m_.trace, row, ElementsIn(message))) {
        // Another op that makes such rows: sizes do not tell whose are summed.
        if (Gathers(row) && MessageDims(row) == message) return {};
        continue;
      }
      if (!Scales(row, message)) return {};
      one.scaling.push_back(row);
    }
    if (one.scatter == kNone || IsTakenAgain(ops, i, message)) return {};
    if (one.sized() && (one.edges < kLeastEdgesPerSum * one.targets ||
                        one.edges == one.sources)) {
      return {};
    }
    return one;
  }

  // True for ops that gather whole rows by one index: x.index_select(0, index),
  // x[index], or gather() with an index that is repeated for each column.
  bool Gathers(RowId row) const {
    const std::string_view name = NameOf(row);
    if (!IsAnyOf(name, {"index_select", "index", "gather"})) return false;
    const Dims& source = DimsOf(m_.trace, row, 0);
    // Without sizes, any rows.
    if (!source.empty() && (source.size() < 2 || source[1] < 2)) return false;
    if (name == "index") return !IsMask(row);
    return TakesRows(row);
  }

  // True if the dimension, the second argument, is that of the rows: 0, or -2
  // as torch_geometric gives it. Without arguments, any dimension may be.
  bool TakesRows(RowId row) const {
    const size_t rank = DimsOf(m_.trace, row, 0).size();
    return !NumberArgument(m_.trace, row, 1) ||
           DimArgument(m_.trace, row, 1, rank) == 0;
  }

  // True if x[mask] looks for the elements that are set.
  bool IsMask(RowId row) const {
    return std::ranges::any_of(m_.tree.inside(row), [&](RowId inner) {
      return Contains(m_.trace.name(m_.trace.ops()[inner].name), "nonzero");
    });
  }

  // Returns the sizes of the rows that `row` gathers; empty if unknown.
  Dims MessageDims(RowId row) const {
    Dims made = DimsOf(m_.trace, row, 0);
    if (made.empty()) return {};
    if (NameOf(row) == "gather") return DimsOf(m_.trace, row, 2);
    Dims index = DimsOf(m_.trace, row, 2);
    if (NameOf(row) == "index") {
      const std::vector<Argument>& all =
          m_.trace.op_inputs()[m_.trace.ops()[row].inputs].arguments;
      if (all.size() < 2 || all[1].elements.size() != 1) return {};
      index = all[1].elements.front().dims;
    }
    if (index.size() != 1) return {};
    made[0] = index[0];
    return made;
  }

  bool MakesZeros(RowId row) const {
    return IsAnyOf(NameOf(row), {"new_zeros", "zeros", "zeros_like", "zero"});
  }

  const ScatterOp* ScatterOpOf(RowId row) const {
    const auto* op =
        std::ranges::find(kScatterOps, NameOf(row), &ScatterOp::name);
    if (op == std::end(kScatterOps) ||
        (op->name == "index_put" && !FlagArgument(m_.trace, row, 3)) ||
        (op->takes_sums && op->name != "index_put" && !TakesRows(row))) {
      return nullptr;
    }
    return op;
  }

  void AddSizes(const ScatterOp& op, const Dims& rows, MessagePass& one) const {
    const TensorShape source = TensorArgument(m_.trace, one.gather, 0);
    const int64_t elements = ElementsOf(source);
    if (rows.size() < 2 || source.dims.size() < 2 || elements == 0) return;
    one.element_bytes = static_cast<double>(BytesOf(m_.trace, source)) /
                        static_cast<double>(elements);
    one.sources = source.dims[0];
    one.row_bytes = static_cast<double>(elements) /
                    static_cast<double>(source.dims[0]) * one.element_bytes;
    one.edges = rows[0];
    const Dims& sums = DimsOf(m_.trace, one.scatter, 0);
    one.targets = op.takes_sums && !sums.empty() ? sums[0] : one.sources;
  }

  // True if `row` multiplies or divides each row of the messages by one number,
  // which gets no gradient, or only copies them. Without sizes, only the ops in
  // its node tell what it multiplies by.
  bool Scales(RowId row, const Dims& message) const {
    if (IsAnyOf(NameOf(row), {"contiguous", "clone", "to", "_to_copy"})) {
      return true;
    }
    if (!IsAnyOf(NameOf(row), {"mul", "div"})) return false;
    const std::vector<RowId> nodes = m_.backward.Of(m_.trace.ops()[row]);
    if (message.empty()) return !nodes.empty() && !HasOtherGradient(nodes);
    const int64_t elements = ElementsIn(message);
    const Dims& first = DimsOf(m_.trace, row, 0);
    const Dims& second = DimsOf(m_.trace, row, 1);
    const Dims& weights = ElementsIn(first) == elements ? second : first;
    return TensorsOfSize(m_.trace, row, elements) == 1 &&
           (weights.empty() || ElementsIn(weights) == 1 ||
            ElementsIn(weights) == message[0]) &&
           !HasOtherGradient(nodes);
  }

  // True if these nodes of a multiplication or division compute the gradient of
  // the weights, too, which takes a second product or a sum over the columns.
  bool HasOtherGradient(std::span<const RowId> nodes) const {
    int64_t computing = 0;
    for (RowId node : nodes) {
      for (RowId inner : m_.tree.inside(node)) {
        const std::string_view name = NameOf(inner);
        if (name == "sum") return true;
        computing += IsAnyOf(name, {"mul", "div", "neg"});
      }
    }
    return computing > 1;
  }

  // True if another op takes the messages of ops[i], the scatter. The next
  // gather of such rows makes new ones.
  bool IsTakenAgain(std::span<const RowId> ops, size_t i,
                    const Dims& message) const {
    if (message.empty()) return false;
    for (++i; i < ops.size(); ++i) {
      if (Gathers(ops[i]) && MessageDims(ops[i]) == message) return false;
      if (!m_.tree.traits(ops[i]).bookkeeping &&
          TakesElements(m_.trace, ops[i], ElementsIn(message))) {
        return true;
      }
    }
    return false;
  }

  const AnalysisContext& m_;
};

}  // namespace

std::vector<MessagePass> FindMessagePasses(const AnalysisContext& context) {
  return MessageFinder(context).Find();
}

}  // namespace stepscope
