#include "evidence/program/layer_calls.h"

#include <map>
#include <string_view>
#include <utility>

#include "ops/contains.h"
#include "ops/op_arguments.h"

namespace stepscope {

size_t WeightArgument(const Trace& trace, RowId op) {
  const std::string_view name = PlainNameOf(trace, op);
  const size_t at = name == "addmm" ? 2 : 1;
  const Dims& input = DimsOf(trace, op, at - 1);
  const Dims& weight = DimsOf(trace, op, at);
  const bool convolves =
      IsAnyOf(name, {"conv1d", "conv2d", "conv3d", "convolution"}) &&
      weight.size() > 2;
  const bool multiplies =
      IsAnyOf(name, {"linear", "addmm", "mm", "matmul"}) && weight.size() == 2;
  return !input.empty() && (convolves || multiplies) ? at : 0;
}

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

std::vector<RowId> LayerGradients::SumsAmong(RowId first, RowId last,
                                             int64_t elements) const {
  std::vector<RowId> sums;
  for (const GraphWalk& walk : walks_) {
    for (const WalkedNode& node : walk.nodes) {
      if (node.row < first || node.row > last) continue;
      for (RowId row : node.added) {
        if (ElementsIn(DimsOf(trace_, row, 0)) == elements &&
            ElementsIn(DimsOf(trace_, row, 1)) == elements) {
          sums.push_back(row);
        }
      }
    }
  }
  return sums;
}

}  // namespace stepscope
