// The calls of one layer in the forward pass of a step, and the gradients that
// they share.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/backward_nodes.h"
#include "evidence/program/forward_steps.h"
#include "evidence/program/graph_walks.h"

namespace stepscope {

// For each layer that `step` calls at least `least` times, the places in
// step.ops, in time order. Calls with equal arguments count as one layer;
// whether they share a weight, sizes do not tell.
std::vector<std::vector<size_t>> RepeatedLayers(const Trace& trace,
                                                const ForwardStep& step,
                                                size_t least);

// What the backward passes have of such calls. Reads all of them in the
// constructor.
class LayerGradients {
 public:
  explicit LayerGradients(const AnalysisContext& context)
      : trace_(context.trace),
        nodes_(context.trace),
        walks_(FindGraphWalks(context)) {}

  std::vector<RowId> NodesOf(RowId call) const {
    return nodes_.Of(trace_.ops()[call]);
  }
  // The engine's sums of gradients with this number of elements, while the
  // nodes from `first` to `last` run: one for each further use of a tensor.
  std::vector<RowId> SumsAmong(RowId first, RowId last, int64_t elements) const;

 private:
  const Trace& trace_;
  BackwardNodes nodes_;
  std::vector<GraphWalk> walks_;
};

}  // namespace stepscope
