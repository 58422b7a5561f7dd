// The calls of one layer in the forward pass of a step, and the gradients that
// they share.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"
#include "steps/forward_steps.h"

namespace stepscope {

// For each layer that `step` calls at least `least` times, the places in
// step.ops, in time order. Calls with equal arguments count as one layer;
// whether they share a weight, sizes do not tell.
std::vector<std::vector<size_t>> RepeatedLayers(const Trace& trace,
                                                const ForwardStep& step,
                                                size_t least);

// True if `op` takes a tensor apart into several.
bool TakesApart(const Trace& trace, RowId op);
// True if `op` makes a tensor as large as one of the sizes `like`, or takes it
// from a larger one.
bool MayMake(const Trace& trace, RowId op, const Dims& like);

// What the backward passes have of such calls. Reads all of them in the
// constructor.
class LayerGradients {
 public:
  explicit LayerGradients(const AnalysisContext& context);

  std::vector<RowId> NodesOf(RowId call) const {
    return m_.backward.Of(m_.trace.ops()[call]);
  }
  // The nodes of these calls, in their order; empty if one of them runs before
  // the last call ends, as where each call has a backward pass of its own.
  std::vector<RowId> NodesBehind(std::span<const RowId> calls) const;
  // True if backward makes a gradient of the input of `layer`.
  bool MakesInputGradient(RowId layer) const;
  // The engine's sums of gradients with this number of elements, while the
  // nodes from `first` to `last` run: one for each further use of a tensor.
  std::vector<RowId> SumsAmong(RowId first, RowId last, int64_t elements) const;
  // How many parameters of these sizes keep a gradient behind one of these
  // nodes. Layers that share a weight keep one.
  size_t KeptAmong(RowId first, RowId last, const Dims& dims) const;

 private:
  // A sum, or a gradient that is kept, behind a node.
  struct Behind {
    RowId node = kNone;
    RowId row = kNone;
    Dims dims = {};
  };
  static std::span<const Behind> Among(const std::vector<Behind>& all,
                                       RowId first, RowId last);

  const AnalysisContext& m_;
  std::vector<Behind> sums_, kept_;  // by node
};

}  // namespace stepscope
