// Stretches of a Trace that a rule and the replay both need to find: work that
// zeroing gradients causes, and forward passes that nobody differentiates.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// Ops that would not run if gradients were set to None instead of zero.
struct ZeroGrad {
  std::vector<RowId> zeroing;  // outermost zero_ or _foreach_zero_ calls
  std::vector<RowId> adding;   // add_ under AccumulateGrad, made necessary by
                               // the zeros (not by several backward passes)
};
ZeroGrad FindZeroGrad(const Trace& trace, const OpTree& tree,
                      const Steps& steps);

// A stretch of forward ops on the training thread that recorded autograd nodes
// which no backward pass visited before the next optimizer step.
struct UnusedGraph {
  Span span;
  int64_t nodes = 0;        // autograd nodes made
  bool has_matmul = false;  // a convolution or matrix product is inside
  int64_t held_bytes = -1;  // most that was alive at once; -1 unknown
  RowId first_op = kNone;
  bool marked = false;  // inside a phase called "validate"
};
// In time order. A stretch after the last backward pass that is no validation
// is left out: the window may have cut its backward pass off.
std::vector<UnusedGraph> FindUnusedGraphs(const Trace& trace,
                                          const OpTree& tree, RowId thread);

// The phases of `thread` called "validate", without overlap.
std::vector<Span> ValidationPasses(const Trace& trace, RowId thread);

// The loader ranges of `thread` that get the first batches of validation
// passes, in row order. The loader has only just begun: however many workers it
// has, nobody has made that batch before.
std::vector<RowId> OpeningLoads(const Trace& trace, RowId thread);

// The checks of anomaly mode: outermost ops below a backward node that ask for
// NaN (isnan > any > item). They stand under the node's own range, outside of
// its kernels.
std::vector<RowId> FindNanChecks(const Trace& trace);

// Whether the recorded settings say that anomaly mode is on in 90 % of the
// steps; nothing if they do not tell.
std::optional<bool> AnomalyModeTold(const Trace& trace);

}  // namespace stepscope
