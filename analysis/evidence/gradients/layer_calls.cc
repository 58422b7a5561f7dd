#include "evidence/gradients/layer_calls.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "evidence/program/forward_ops.h"
#include "evidence/program/op_shapes.h"
#include "ops/contains.h"

namespace stepscope {

std::vector<std::vector<size_t>> RepeatedLayers(const Trace& trace,
                                                const ForwardStep& step,
                                                size_t least) {
  // Calls with equal arguments share a row of inputs.
  std::map<RowId, std::vector<size_t>> calls;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    const RowId inputs = trace.ops()[step.ops[i]].inputs;
    if (inputs != kNone && WeightArgument(trace, step.ops[i]) > 0) {
      calls[inputs].push_back(i);
    }
  }
  std::vector<std::vector<size_t>> repeated;
  for (auto& [inputs, at] : calls) {
    if (at.size() >= least) repeated.push_back(std::move(at));
  }
  return repeated;
}

bool TakesApart(const Trace& trace, RowId op) {
  return IsAnyOf(PlainNameOf(trace, op),
                 {"unbind", "chunk", "split", "split_with_sizes",
                  "unsafe_chunk", "unsafe_split", "tensor_split"});
}

bool MayMake(const Trace& trace, RowId op, const Dims& like) {
  if (like.empty()) return true;
  const int64_t elements = ElementsIn(like);
  const std::optional<Dims> made = ResultDims(trace, op);
  if (made && PlainNameOf(trace, op) == "cat") {
    return ElementsIn(*made) == elements;
  }
  // The first dimension is the batch.
  const int64_t sample =
      std::max<int64_t>(1, ElementsIn({like.begin() + 1, like.end()}));
  if (TakesApart(trace, op) ||
      IsAnyOf(PlainNameOf(trace, op),
              {"index", "index_select", "gather", "select", "slice", "narrow",
               "stack", "cat"})) {
    // An op that picks rows makes as many rows as its index has, and the index
    // may not have been recorded. So accept any number of rows, if the source
    // is larger and consists of rows of this size.
    const Dims& source = DimsOf(trace, op, 0);
    if (source.empty()) return TakesElements(trace, op, sample);
    return ElementsIn(source) > elements && ElementsIn(source) % sample == 0;
  }
  return made ? ElementsIn(*made) == elements
              : TakesElements(trace, op, elements);
}

std::vector<RowId> LayerGradients::NodesBehind(
    std::span<const RowId> calls) const {
  std::vector<RowId> nodes;
  const int64_t last_ns = m_.trace.ops()[calls.back()].end_ns;
  for (RowId call : calls) {
    for (RowId node : NodesOf(call)) {
      if (m_.trace.ops()[node].begin_ns < last_ns) return {};
      nodes.push_back(node);
    }
  }
  return nodes;
}

bool LayerGradients::MakesInputGradient(RowId layer) const {
  for (RowId node : NodesOf(layer)) {
    // A convolution records which gradients it computes. The node of a linear
    // layer runs one product for the weight, and a second one only if the input
    // needs a gradient, too.
    size_t products = 0;
    for (RowId row : m_.tree.inside(node)) {
      if (const auto of_input = MakesGradient(m_.trace, row, 0)) {
        return *of_input;
      }
      products += IsAnyOf(m_.trace.name(m_.trace.ops()[row].name),
                          {"aten::mm", "aten::bmm"});
    }
    if (products > 1) return true;
  }
  return false;
}

LayerGradients::LayerGradients(const AnalysisContext& context) : m_(context) {
  for (const GraphWalk& walk : context.graph_walks) {
    for (const WalkedNode& node : walk.nodes) {
      for (RowId row : node.added) {
        const Dims& dims = DimsOf(m_.trace, row, 0);
        // The engine adds gradients of the same tensor, which have the same
        // size. Additions in a backward formula may broadcast.
        if (ElementsIn(dims) == ElementsIn(DimsOf(m_.trace, row, 1))) {
          sums_.push_back({node.row, row, dims});
        }
      }
      for (const KeptGradient& one : node.kept) {
        kept_.push_back({node.row, one.row, one.gradient});
      }
    }
  }
  // Sort by node for the search in Among(). Passes on several threads may
  // overlap in time, so the lists need not be sorted yet.
  std::ranges::stable_sort(sums_, {}, &Behind::node);
  std::ranges::stable_sort(kept_, {}, &Behind::node);
}

std::span<const LayerGradients::Behind> LayerGradients::Among(
    const std::vector<Behind>& all, RowId first, RowId last) {
  const auto begin = std::ranges::lower_bound(all, first, {}, &Behind::node);
  const auto end = std::ranges::upper_bound(all, last, {}, &Behind::node);
  return {begin, std::max(begin, end)};
}

std::vector<RowId> LayerGradients::SumsAmong(RowId first, RowId last,
                                             int64_t elements) const {
  std::vector<RowId> sums;
  for (const Behind& sum : Among(sums_, first, last)) {
    if (ElementsIn(sum.dims) == elements) sums.push_back(sum.row);
  }
  return sums;
}

size_t LayerGradients::KeptAmong(RowId first, RowId last,
                                 const Dims& dims) const {
  return static_cast<size_t>(
      std::ranges::count(Among(kept_, first, last), dims, &Behind::dims));
}

}  // namespace stepscope
