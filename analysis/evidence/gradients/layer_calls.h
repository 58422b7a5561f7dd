// Finds the calls of one layer in the forward pass of a step, and the gradients
// that these calls share.
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

// Returns, for each layer that `step` calls at least `least` times, the indices
// of the calls in step.ops, in time order. Calls with equal arguments count as
// one layer, although sizes do not tell whether they share a weight.
std::vector<std::vector<size_t>> RepeatedLayers(const Trace& trace,
                                                const ForwardStep& step,
                                                size_t least);

// True if `op` splits a tensor into several.
bool TakesApart(const Trace& trace, RowId op);
// True if `op` may make a tensor as large as one of the sizes `like`, by
// computing it or by taking it from a larger tensor.
bool MayMake(const Trace& trace, RowId op, const Dims& like);

// The gradients that backward computes for layer calls. The constructor reads
// all backward passes.
class LayerGradients {
 public:
  explicit LayerGradients(const AnalysisContext& context);

  std::vector<RowId> NodesOf(RowId call) const {
    return m_.backward.Of(m_.trace.ops()[call]);
  }
  // Returns the nodes of these calls, in order of the calls. Empty if a node
  // runs before the last call ends, which happens if each call has its own
  // backward pass.
  std::vector<RowId> NodesBehind(std::span<const RowId> calls) const;
  // True if backward computes the gradient of the input of `layer`.
  bool MakesInputGradient(RowId layer) const;
  // Returns the engine's sums of gradients with `elements` elements, among the
  // nodes from `first` to `last`. The engine adds once for each further use of
  // a tensor.
  std::vector<RowId> SumsAmong(RowId first, RowId last, int64_t elements) const;
  // Returns how many parameters of size `dims` get a gradient right after one
  // of the nodes from `first` to `last`. Layers that share a weight count once.
  size_t KeptAmong(RowId first, RowId last, const Dims& dims) const;

 private:
  // A sum of gradients, or a stored gradient, that comes right after `node`.
  struct Behind {
    RowId node = kNone;
    RowId row = kNone;
    Dims dims = {};
  };
  static std::span<const Behind> Among(const std::vector<Behind>& all,
                                       RowId first, RowId last);

  const AnalysisContext& m_;
  std::vector<Behind> sums_, kept_;  // sorted by node
};

}  // namespace stepscope
