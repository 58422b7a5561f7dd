// BackwardNodes: which autograd nodes belong to a part of the forward pass.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"

namespace stepscope {

// Reads the ops once, in the constructor. Valid while the Trace lives; any
// thread may read it.
class BackwardNodes {
 public:
  explicit BackwardNodes(const Trace& trace);

  // Returns the autograd nodes of the ops that `thread` started inside
  // `forward`, ordered by the start of these ops. Where the engine opened a
  // range around a node, the range is returned in place of the node.
  std::vector<RowId> Of(RowId thread, Span forward) const;
  // The nodes of `op` and of the ops that it calls.
  std::vector<RowId> Of(const Op& op) const {
    return Of(op.thread, {op.begin_ns, op.end_ns});
  }

 private:
  struct Node {
    RowId thread = kNone;  // of the forward op
    int64_t begin_ns = 0;  // of the forward op
    RowId row = kNone;
  };
  std::vector<Node> nodes_;  // sorted by thread, then by start
};

// Returns how many gradients are accumulated while `nodes` run. A weight that
// several layers share counts once, because its gradient is accumulated after
// its last use.
int64_t GradientsAmong(const Trace& trace, const OpTree& tree,
                       std::span<const RowId> nodes);

// True if `op`, an aten::convolution_backward, computes the gradient of the
// input (`of` = 0), the weight (1) or the bias (2); nullopt if the recording
// does not say.
std::optional<bool> MakesGradient(const Trace& trace, RowId op, size_t of);

// Returns the outermost op or range around `op`, which may be `op` itself.
RowId OutermostOf(const Trace& trace, RowId op);

// Returns the engine's own range around a backward node; the node itself if
// there is none. Unlike the outermost range, it is also the node's own where a
// hook runs another backward pass.
RowId EngineRangeOf(const Trace& trace, RowId node);

// True if hooks of modules see gradients during the backward pass. What they
// make of them, such as gradients per sample, the recording does not show.
bool HasModuleHooks(const Trace& trace);

// True if `op` is part of an AccumulateGrad node and adds the new gradient to
// the one already accumulated, as `+=` does.
bool AddsToGradient(const Trace& trace, RowId op);

}  // namespace stepscope
