#include "evidence/program/dense_tables.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "evidence/optimizer_work.h"
#include "steps/patterns.h"
#include "steps/steady_steps.h"
#include "timeline/timeline.h"

namespace stepscope {
namespace {

// With a dense gradient, plain SGD makes four passes over V rows: it fills the
// gradient, reads it in the update, and reads and writes the table. A sparse
// gradient of n rows is written, sorted and summed (read and written twice
// each), and read by the update, which also reads and writes its rows of the
// table: up to eight passes over n rows. With ten times as many rows as
// lookups, a sparse update moves at most a fifth of the bytes.
constexpr int64_t kRowsPerLookup = 10;

using Sizes = std::vector<int64_t>;

// The positions of the arguments of a table's backward op.
struct Layout {
  std::string_view op;
  size_t indices, rows, by_frequency, mode;
};
constexpr size_t kNoArgument = 99;
constexpr Layout kLayouts[] = {
    {"aten::embedding_dense_backward", 1, 2, 4, kNoArgument},
    {"aten::_embedding_bag_dense_backward", 1, 5, 6, 7}};

std::string_view ConcreteArgument(const Trace& trace, RowId op, size_t index) {
  const RowId inputs = trace.ops()[op].inputs;
  if (inputs == kNone) return "";
  const auto& arguments = trace.op_inputs()[inputs].arguments;
  return index < arguments.size() ? trace.name(arguments[index].concrete) : "";
}

// True if PyTorch implements no sparse gradient for this call (Embedding.cpp
// and EmbeddingBag.cpp in ATen).
bool HasNoSparseForm(const Trace& trace, RowId op, const Layout& layout) {
  return ConcreteArgument(trace, op, layout.by_frequency) == "True" ||
         ConcreteArgument(trace, op, layout.mode) == "2";
}

// Returns the table: its number of rows from an argument, its width from the
// gradient. Before torch 2.1 the number was not recorded, so the sizes come
// from the forward op.
TensorShape TableOf(const Trace& trace, RowId op, const Layout& layout) {
  TensorShape table = TensorArgument(trace, op, 0);
  const std::string_view rows = ConcreteArgument(trace, op, layout.rows);
  int64_t count = 0;
  std::from_chars(rows.data(), rows.data() + rows.size(), count);
  if (count > 0 && !table.dims.empty()) {
    table.dims = {count, table.dims.back()};
    return table;
  }
  const RowId node = NodeAround(trace, op);
  if (node == kNone || trace.ops()[node].forward == kNone) return {};
  table = TensorArgument(trace, trace.ops()[node].forward, 0);
  return table.dims.size() == 2 ? table : TensorShape();
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

void FindBackwardOps(const AnalysisContext& m, BySize& sizes) {
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    const auto* layout =
        std::ranges::find(kLayouts, m.trace.name(op.name), &Layout::op);
    if (layout == std::end(kLayouts) || !InSteadyStep(m.steps, op.begin_ns)) {
      continue;
    }
    const TensorShape table = TableOf(m.trace, row, *layout);
    const TensorShape indices = TensorArgument(m.trace, row, layout->indices);
    if (!table.known() || !indices.known()) continue;
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

// Finds the nodes that store gradients, and the engine's sums of several
// gradients of one tensor, which run outside these nodes. Returns the bytes of
// all stored gradients.
double FindSums(const AnalysisContext& m, BySize& sizes) {
  double all_bytes = 0;
  for (RowId row = 0; row < m.trace.ops().size(); ++row) {
    const Op& op = m.trace.ops()[row];
    const bool keeps = m.tree.traits(row).accumulate_grad;
    const bool adds = m.tree.traits(row).adding && op.parent != kNone &&
                      m.trace.name(m.trace.ops()[op.parent].name)
                          .starts_with("autograd::engine::");
    if ((!keeps && !adds) || !InSteadyStep(m.steps, op.begin_ns)) continue;
    const TensorShape gradient = TensorArgument(m.trace, row, 0);
    const auto bytes = static_cast<double>(BytesOf(m.trace, gradient));
    if (keeps) all_bytes += bytes;
    const auto one = sizes.find(gradient.dims);
    if (one == sizes.end()) continue;
    (keeps ? one->second.kept : one->second.sums).push_back(row);
    if (keeps) one->second.bytes += bytes;
  }
  return all_bytes;
}

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

// Adds the optimizer's ops in proportion to their work on tables. For lists
// without recorded sizes, that is the share of tables in all gradients.
void FindUpdates(const AnalysisContext& m, const std::vector<Span>& zeroing,
                 const BySize& sizes, double share_of_gradients,
                 DenseTables& found) {
  const auto in_optimizer = [&](const Op& op) {
    return LiesIn(m.parts.optimizer.spans, op.begin_ns) ||
           LiesIn(zeroing, op.begin_ns);
  };
  for (RowId row : m.tree.of_thread(m.steps.thread)) {
    const Op& op = m.trace.ops()[row];
    if (op.inputs == kNone || !in_optimizer(op) ||
        !InSteadyStep(m.steps, op.begin_ns) ||
        (op.parent != kNone && in_optimizer(m.trace.ops()[op.parent]))) {
      continue;
    }
    const double share = TakesCutList(m.trace, row)
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

DenseTables FindDenseTables(const AnalysisContext& m) {
  DenseTables found;
  if (m.steps.thread == kNone || m.steps.steady.empty()) return found;
  BySize sizes;
  FindBackwardOps(m, sizes);
  if (sizes.empty()) return found;
  const double all_bytes = FindSums(m, sizes);
  std::erase_if(sizes, [](const auto& entry) {
    const auto& [dims, one] = entry;
    const auto rows = static_cast<double>(
        std::min(one.kept.size(), one.backward.size()) * dims.front());
    return !one.sparse_possible || one.kept.empty() || one.may_be_tied() ||
           one.found.lookups * kRowsPerLookup > rows;
  });
  if (sizes.empty()) return found;
  const auto steps = static_cast<double>(m.steps.steady.size());
  double bytes = 0;
  for (auto& [dims, one] : sizes) {
    for (RowId row : one.backward) found.backward.push_back({row, 0});
    for (RowId row : one.sums) found.update.push_back({row, 0});
    for (RowId row : one.kept) found.update.push_back({row, 1 - one.share()});
    bytes += one.share() * one.bytes;
    one.found.count =
        one.share() * static_cast<double>(one.kept.size()) / steps;
    one.found.lookups /= steps;
    found.tables.push_back(one.found);
  }
  std::ranges::stable_sort(
      found.tables, std::greater(), [&](const DenseTable& one) {
        return one.count * static_cast<double>(BytesOf(m.trace, one.table));
      });
  const std::vector<Span> zeroing = ZeroGradRanges(m.trace);
  const double share = all_bytes > 0 ? bytes / all_bytes : 0;
  FindUpdates(m, zeroing, sizes, share, found);
  found.free_ns = FreeingNs(m, zeroing) * share / steps;
  return found;
}

}  // namespace stepscope
