#include "evidence/gradients/layer_calls.h"

#include <map>
#include <utility>

#include "ops/op_arguments.h"

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
