#include "evidence/program/dense_tables.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "evidence/optimizer_work.h"
#include "evidence/program/op_shapes.h"
#include "ops/backward_nodes.h"
#include "ops/contains.h"
#include "ops/intervals.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

using Sizes = std::vector<int64_t>;

// The positions of the arguments of a table's backward op, and of the forward
// op, which takes the table and the indices first.
struct Layout {
  std::string_view op;
  size_t rows, by_frequency, mode;
  size_t forward_by_frequency, forward_mode;
};
constexpr size_t kNoArgument = 99;
constexpr Layout kLayouts[] = {
    {"aten::embedding_dense_backward", 2, 4, kNoArgument, 3, kNoArgument},
    {"aten::_embedding_bag_dense_backward", 5, 6, 7, 3, 4}};
constexpr size_t kTable = 0, kIndices = 1;

// Returns the op that made the autograd node around `op`; kNone if unknown.
RowId ForwardOf(const Trace& trace, RowId op) {
  const RowId node = NodeAround(trace, op);
  return node == kNone ? kNone : trace.ops()[node].forward;
}

// True if PyTorch implements no sparse gradient for this call (Embedding.cpp
// and EmbeddingBag.cpp in ATen).
bool HasNoSparseForm(const Trace& trace, RowId op, const Layout& layout) {
  const auto rules_out = [&](RowId row, size_t by_frequency, size_t mode) {
    return row != kNone && (TextArgument(trace, row, by_frequency) == "True" ||
                            TextArgument(trace, row, mode) == "2");
  };
  return rules_out(op, layout.by_frequency, layout.mode) ||
         rules_out(ForwardOf(trace, op), layout.forward_by_frequency,
                   layout.forward_mode);
}

// Returns the table: its number of rows from an argument, its width from the
// gradient. Before torch 2.1 the number was not recorded, and some files lack
// the gradient's sizes, so the sizes come from the forward op.
TensorShape TableOf(const Trace& trace, RowId op, const Layout& layout) {
  TensorShape table = TensorArgument(trace, op, 0);
  const std::string_view rows = TextArgument(trace, op, layout.rows);
  int64_t count = 0;
  std::from_chars(rows.data(), rows.data() + rows.size(), count);
  if (count > 0 && table.dims.size() > 1) {
    table.dims = {count, table.dims.back()};
    return table;
  }
  const RowId forward = ForwardOf(trace, op);
  if (forward == kNone) return {};
  table = TensorArgument(trace, forward, kTable);
  return table.dims.size() == 2 ? table : TensorShape();
}

TensorShape IndicesOf(const Trace& trace, RowId op) {
  const TensorShape indices = TensorArgument(trace, op, kIndices);
  const RowId forward = ForwardOf(trace, op);
  return indices.known() || forward == kNone
             ? indices
             : TensorArgument(trace, forward, kIndices);
}

// Returns the most bytes that a parameter may have whose gradient `node` made,
// by what the forward op takes; 0 if unknown. The op may also take larger
// tensors than the parameter, so the result is seldom too small.
double MostBytesOfParameter(const Trace& trace, RowId node) {
  const RowId forward = node == kNone ? kNone : trace.ops()[node].forward;
  if (forward == kNone || !HasArguments(trace, forward)) return 0;
  const size_t count =
      trace.op_inputs()[trace.ops()[forward].inputs].arguments.size();
  size_t first = WeightArgument(trace, forward);
  const size_t end = first > 0 ? first + 1 : count;
  // Layers that normalise take their input first.
  if (first == 0 && Contains(PlainNameOf(trace, forward), "norm")) first = 1;
  int64_t most = 0;
  for (size_t i = first; i < end; ++i) {
    most = std::max(most, BytesOf(trace, TensorArgument(trace, forward, i)));
  }
  return static_cast<double>(most);
}

// The gradients of one size, over all steady steps.
struct Gradients {
  DenseTable found;
  std::vector<RowId> backward = {};  // ops that make a table's gradient
  std::vector<RowId> kept = {};      // AccumulateGrad of any parameter
  std::vector<RowId> sums = {};      // of two gradients of one parameter
  double bytes = 0;                  // of `kept`
  bool sparse_possible = true;

  // Gradients made by ops other than lookups.
  double others() const {
    return std::max(0.0, static_cast<double>(kept.size() + sums.size()) -
                             static_cast<double>(backward.size()));
  }
  // If the engine sums gradients and other ops make some of this size, both may
  // be of the same parameter.
  bool may_be_tied() const { return !sums.empty() && others() > 0; }
  // The share of the parameters of this size that are tables.
  double share() const {
    return kept.empty() ? 0 : 1 - others() / static_cast<double>(kept.size());
  }
};
using BySize = std::map<Sizes, Gradients>;
// The sizes of the table whose gradient a node makes, by its outermost range.
using TablesByNode = std::map<RowId, Sizes>;

// A stored gradient, in time order.
struct Kept {
  RowId row = kNone;           // AccumulateGrad
  Gradients* table = nullptr;  // of its size
  double bytes = 0;
};

void FindBackwardOps(const AnalysisContext& m, BySize& sizes,
                     TablesByNode& nodes) {
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    const auto* layout =
        std::ranges::find(kLayouts, m.trace.name(op.name), &Layout::op);
    if (layout == std::end(kLayouts) || !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    const TensorShape table = TableOf(m.trace, row, *layout);
    const TensorShape indices = IndicesOf(m.trace, row);
    if (!table.known() || !indices.known()) continue;
    nodes[OutermostOf(m.trace, row)] = table.dims;
    Gradients& one = sizes[table.dims];
    if (one.backward.empty()) {
      one.found.table = table;
      one.found.backward = row;
    }
    one.backward.push_back(row);
    one.found.lookups += static_cast<double>(ElementsOf(indices));
    one.sparse_possible &= !HasNoSparseForm(m.trace, row, *layout);
  }
}

// Whether the autograd engine adds gradients of one tensor in this op.
bool IsSumOfEngine(const AnalysisContext& m, RowId row) {
  const RowId parent = m.trace.ops()[row].parent;
  return m.tree.traits(row).adding && parent != kNone &&
         m.trace.name(m.trace.ops()[parent].name)
             .starts_with("autograd::engine::");
}

// Finds the nodes that store gradients, and the engine's sums of several
// gradients of one tensor, which run outside these nodes. Where their sizes
// were not recorded, the node before tells whose gradient it is.
class SumFinder {
 public:
  SumFinder(const AnalysisContext& context, const TablesByNode& nodes,
            BySize& sizes)
      : m_(context),
        nodes_(nodes),
        sizes_(sizes),
        before_(context.trace.threads().size(), kNone) {}

  void Find() {
    for (RowId row = 0; row < m_.trace.ops().size(); ++row) {
      const Op& op = m_.trace.ops()[row];
      if (op.thread == kNone) continue;
      if (m_.tree.traits(row).accumulate_grad) {
        if (InSteadyStep(m_.steps, op.begin_ns)) AddKept(row);
      } else if (IsSumOfEngine(m_, row)) {
        if (InSteadyStep(m_.steps, op.begin_ns)) AddSum(row);
      } else if (op.parent == kNone && op.kind == OpKind::kBackward &&
                 !Contains(m_.trace.name(op.name), "AccumulateGrad") &&
                 !IsUnsizedView(op.forward)) {
        before_[op.thread] = row;
      }
    }
  }

  // All stored gradients, and their bytes; 0 bytes if any are unknown.
  std::vector<Kept> kept;
  double all_bytes() const {
    double bytes = 0;
    for (const Kept& one : kept) {
      if (one.bytes == 0) return 0;
      bytes += one.bytes;
    }
    return bytes;
  }

 private:
  // A view passes on what the node before made: the gradient of a weight goes
  // through the node of aten::t.
  bool IsUnsizedView(RowId forward) const {
    return forward != kNone && m_.tree.traits(forward).bookkeeping &&
           !HasArguments(m_.trace, forward);
  }

  // The table whose gradient `node` makes, if a gradient of unknown or
  // flattened sizes may be that one.
  const Sizes* TableAt(RowId node, const TensorShape& gradient) const {
    const auto table = nodes_.find(node);
    return table != nodes_.end() &&
                   (!gradient.known() ||
                    ElementsOf(gradient) == ElementsIn(table->second))
               ? &table->second
               : nullptr;
  }

  void AddKept(RowId row) {
    const RowId before = before_[m_.trace.ops()[row].thread];
    const TensorShape gradient = TensorArgument(m_.trace, row, 0);
    auto found = sizes_.find(gradient.dims);
    if (const Sizes* table = TableAt(before, gradient)) {
      found = sizes_.find(*table);
    }
    Kept one{.row = row};
    if (gradient.known()) {
      one.bytes = static_cast<double>(BytesOf(m_.trace, gradient));
    } else if (found == sizes_.end()) {
      one.bytes = MostBytesOfParameter(m_.trace, before);
    } else {
      one.bytes =
          static_cast<double>(BytesOf(m_.trace, found->second.found.table));
    }
    if (found != sizes_.end()) {
      one.table = &found->second;
      one.table->kept.push_back(row);
      one.table->bytes += one.bytes;
    }
    kept.push_back(one);
  }

  void AddSum(RowId row) {
    const TensorShape gradient = TensorArgument(m_.trace, row, 0);
    auto found = sizes_.find(gradient.dims);
    if (!gradient.known()) {
      const auto table = nodes_.find(m_.trace.ops()[row].parent);
      if (table != nodes_.end()) found = sizes_.find(table->second);
    }
    if (found != sizes_.end()) found->second.sums.push_back(row);
  }

  const AnalysisContext& m_;
  const TablesByNode& nodes_;
  BySize& sizes_;
  std::vector<RowId> before_;  // by thread: the last node that is no such view
};

// Returns the share of tables in the elements of all tensors that `op` takes.
double ShareOfTables(const Trace& trace, const Op& op, const BySize& sizes) {
  double all = 0, of_tables = 0;
  const auto count = [&](const Argument& tensor) {
    if (tensor.dims.empty()) return;
    double elements = 1;
    for (int64_t size : tensor.dims) elements *= static_cast<double>(size);
    all += elements;
    const auto one = sizes.find(tensor.dims);
    if (one != sizes.end()) of_tables += one->second.share() * elements;
  };
  for (const Argument& one : trace.op_inputs()[op.inputs].arguments) {
    count(one);
    std::ranges::for_each(one.elements, count);
  }
  return all > 0 ? of_tables / all : 0;
}

// Adds what else runs when a gradient is stored: the copies that
// DistributedDataParallel makes of it, and the all-reduce of the gradients
// since the last one.
void FindReductions(const AnalysisContext& m, const std::vector<Kept>& kept,
                    const BySize& sizes, DenseTables& found) {
  const auto is_table = [&](const Kept& one) {
    return std::ranges::any_of(
        sizes, [&](const auto& entry) { return &entry.second == one.table; });
  };
  std::map<RowId, double> left;  // by all-reduce
  double tables = 0, all = 0;    // bytes since the last one
  bool known = true;             // of all of these gradients
  for (const Kept& one : kept) {
    const double share = is_table(one) ? one.table->share() : 0;
    tables += share * one.bytes;
    all += one.bytes;
    known &= one.bytes > 0;
    const RowId range = EngineRangeOf(m.trace, one.row);
    for (RowId row : m.tree.inside(range)) {
      if (m.trace.ops()[row].parent != range || row == one.row) continue;
      if (!m.tree.traits(row).communication) {
        if (share > 0) found.update.push_back({row, 1 - share});
        continue;
      }
      if (known && tables > 0) left[row] = 1 - tables / all;
      tables = all = 0;
      known = true;
    }
  }
  const auto steps = static_cast<double>(m.steps.steady.size());
  for (const Collective& one : m.collectives) {
    const auto reduces = left.find(one.op);
    if (reduces == left.end()) continue;
    found.hidden_ns +=
        static_cast<double>(one.moved.end_ns - one.moved.begin_ns -
                            one.exposed_ns) *
        (1 - reduces->second) / steps;
  }
  for (const auto& [row, share] : left) found.update.push_back({row, share});
  found.reduced = !left.empty();
}

// Adds the ops of the optimizer and of the gradient scaler in proportion to
// their work on tables. For lists without recorded sizes, that is the share of
// tables in all gradients.
void FindUpdates(const AnalysisContext& m, const std::vector<Span>& zeroing,
                 const BySize& sizes, double share_of_gradients,
                 DenseTables& found) {
  const auto in_optimizer = [&](const Op& op) {
    return Covers(m.parts.optimizer.spans, op.begin_ns) ||
           Covers(zeroing, op.begin_ns) ||
           m.trace.name(op.name) ==
               "aten::_amp_foreach_non_finite_check_and_unscale_";
  };
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (!in_optimizer(op) || !InSteadyStep(m.steps, op.begin_ns) ||
        (op.parent != kNone && in_optimizer(m.trace.ops()[op.parent]))) {
      continue;
    }
    const double share =
        !HasArguments(m.trace, row) || TakesCutList(m.trace, row)
            ? share_of_gradients
            : ShareOfTables(m.trace, op, sizes);
    if (share > 0) found.update.push_back({row, 1 - share});
  }
}

// Returns the time between the ops of Optimizer.zero_grad, over all steady
// steps. In it, gradients are set to None, which returns large ones to the
// system page by page.
double FreeingNs(const AnalysisContext& m, const std::vector<Span>& zeroing) {
  double ns = 0;
  if (m.has_gpu) return ns;  // the caching allocator returns nothing
  for (const auto& timeline : m.timelines) {
    for (const Segment& segment : timeline) {
      if (segment.cause != Cause::kHostCode) continue;
      const int64_t inside =
          LengthIn(zeroing, {segment.begin_ns, segment.end_ns});
      if (inside > kFrameworkGapNs) ns += static_cast<double>(inside);
    }
  }
  return ns;
}

}  // namespace

DenseTables FindDenseTables(
    const AnalysisContext& m,
    const std::function<bool(const DenseTable&)>& accept) {
  DenseTables found;
  if (m.steps.thread == kNone || m.steps.steady.empty()) return found;
  BySize sizes;
  TablesByNode nodes;
  FindBackwardOps(m, sizes, nodes);
  if (sizes.empty()) return found;
  SumFinder sums(m, nodes, sizes);
  sums.Find();
  const auto steps = static_cast<double>(m.steps.steady.size());
  for (auto& [dims, one] : sizes) {
    one.found.count =
        one.share() * static_cast<double>(one.kept.size()) / steps;
    one.found.lookups /= steps;
  }
  std::erase_if(sizes, [&](const auto& entry) {
    const Gradients& one = entry.second;
    return !one.sparse_possible || one.kept.empty() || one.may_be_tied() ||
           !accept(one.found);
  });
  if (sizes.empty()) return found;
  double bytes = 0;
  for (auto& [dims, one] : sizes) {
    for (RowId row : one.backward) found.backward.push_back({row, 0});
    for (RowId row : one.sums) found.update.push_back({row, 0});
    for (RowId row : one.kept) found.update.push_back({row, 1 - one.share()});
    bytes += one.share() * one.bytes;
    found.tables.push_back(one.found);
  }
  std::ranges::stable_sort(
      found.tables, std::greater(), [&](const DenseTable& one) {
        return one.count * static_cast<double>(BytesOf(m.trace, one.table));
      });
  const std::vector<Span> zeroing = ZeroGradRanges(m.trace);
  const double all_bytes = sums.all_bytes();
  const double share = all_bytes > 0 ? bytes / all_bytes : 0;
  FindReductions(m, sums.kept, sizes, found);
  FindUpdates(m, zeroing, sizes, share, found);
  found.free_ns = FreeingNs(m, zeroing) * share / steps;
  return found;
}

namespace {

// Adding a row costs some 50 to 100 ns, filling one 1 to 10 ns (64 to 1024
// bytes at 10 to 40 GB/s, measured on AVX2 and AVX-512 CPUs). At this ratio a
// table has at least ten times as many rows as are looked up.
constexpr double kFillOfRest = 0.5;
// Shorter fills are of tables that cost little.
constexpr int64_t kLeastFillNs = 50'000;

int64_t LengthOf(const Op& op) { return op.end_ns - op.begin_ns; }

// Returns the time in which ops inside `row` fill tensors with zeros.
int64_t FillNs(const AnalysisContext& m, RowId row) {
  std::vector<Span> fills;
  for (RowId inside : m.tree.inside(row)) {
    if (!m.tree.traits(inside).zeroing) continue;
    const Op& op = m.trace.ops()[inside];
    fills.push_back({op.begin_ns, op.end_ns});
  }
  return Length(Merge(std::move(fills)));
}

// Adds, for each op name of an optimizer's step, the calls that take longest,
// as many as there are tables in the step. Ops on lists of parameters go as a
// whole.
void FindLongestUpdates(const AnalysisContext& m,
                        const std::map<size_t, size_t>& tables,
                        DenseTables& found) {
  std::map<std::pair<size_t, NameId>, std::vector<RowId>> by_name;
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (op.parent != kNone || !tables.contains(step) || !m.tree.computes(row) ||
        !Covers(m.parts.optimizer.spans, op.begin_ns)) {
      continue;
    }
    by_name[{step, op.name}].push_back(row);
  }
  for (auto& [key, rows] : by_name) {
    std::ranges::sort(rows, std::greater(),
                      [&](RowId row) { return LengthOf(m.trace.ops()[row]); });
    rows.resize(std::min(rows.size(), tables.at(key.first)));
    for (RowId row : rows) found.update.push_back({row, 0});
  }
}

}  // namespace

UnsizedTables FindUnsizedTables(const AnalysisContext& m) {
  UnsizedTables unsized;
  if (m.has_gpu || m.steps.thread == kNone || m.steps.steady.empty()) {
    return unsized;
  }
  std::map<size_t, size_t> tables;  // by steady step
  int64_t shortest_fill = INT64_MAX, filled = 0, rest = 0;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    const size_t step = SteadyStepAt(m.steps, op.begin_ns);
    if (step == m.steps.windows.size() ||
        std::ranges::find(kLayouts, m.trace.name(op.name), &Layout::op) ==
            std::end(kLayouts)) {
      continue;
    }
    const int64_t fill = FillNs(m, row);
    if (fill < kLeastFillNs) continue;
    filled += fill;
    rest += LengthOf(op) - fill;
    shortest_fill = std::min(shortest_fill, fill);
    unsized.found.backward.push_back({row, 0});
    ++tables[step];
  }
  if (static_cast<double>(filled) < kFillOfRest * static_cast<double>(rest)) {
    return {};
  }
  for (RowId row = 0; row < m.trace.ops().size() && !tables.empty(); ++row) {
    const Op& op = m.trace.ops()[row];
    if (LengthOf(op) >= shortest_fill && IsSumOfEngine(m, row)) {
      return {};
    }
  }
  FindLongestUpdates(m, tables, unsized.found);
  const auto steps = static_cast<double>(m.steps.steady.size());
  unsized.count = static_cast<double>(unsized.found.backward.size()) / steps;
  unsized.found.free_ns = FreeingNs(m, ZeroGradRanges(m.trace)) / steps;
  return unsized;
}

}  // namespace stepscope
