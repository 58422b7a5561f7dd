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

  // Returns the nodes of the ops that `thread` began inside `forward`, in the
  // order of these ops. Of the engine's range and the node in it, the range.
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
  std::vector<Node> nodes_;  // by thread, then by begin
};

// Returns how many gradients are accumulated while `nodes` run. Those of shared
// weights are accumulated once, after the last use; those of layers with
// weights of their own after each.
int64_t GradientsAmong(const Trace& trace, const OpTree& tree,
                       std::span<const RowId> nodes);

// Whether `op`, an aten::convolution_backward, makes the gradient of the input
// (0), the weight (1) or the bias (2); nullopt if that was not recorded.
std::optional<bool> MakesGradient(const Trace& trace, RowId op, size_t of);

// The outermost op or range around `op`, which may be `op` itself.
RowId OutermostOf(const Trace& trace, RowId op);

// True if `op` is part of an AccumulateGrad node and adds the gradient to an
// earlier one, as `+=` does.
bool AddsToGradient(const Trace& trace, RowId op);

}  // namespace stepscope
