// Parts of a Trace that both rules and replay need: the ops that zeroing
// gradients causes, forward passes without a backward pass, validation passes,
// and the checks of anomaly mode.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// Where torch.optim sets gradients to zero or None, disjoint. Python opens such
// ranges; C++ optimizers do not.
std::vector<Span> ZeroGradRanges(const Trace& trace);

// The ops that would not run if gradients were set to None instead of zero.
struct ZeroGrad {
  std::vector<RowId> zeroing;  // outermost zero_ or _foreach_zero_ calls
  std::vector<RowId> adding;   // add_ below AccumulateGrad that adds to zeros;
                               // empty if gradients of several backward passes
                               // are summed, which needs the adds
};
ZeroGrad FindZeroGrad(const Trace& trace, const OpTree& tree,
                      const Steps& steps);

// A run of forward ops on the training thread whose autograd nodes no backward
// pass visits: typically validation without no_grad().
struct UnusedGraph {
  Span span;
  int64_t nodes = 0;        // autograd nodes made
  bool has_matmul = false;  // it contains a convolution or matrix product
  int64_t held_bytes = -1;  // most bytes that its allocations held at once;
                            // -1: memory was not recorded
  RowId first_op = kNone;
  bool marked = false;  // at least half of it lies in a "validate" phase
};
// Returns the unused graphs in time order. Ops after the last backward pass
// count only if they are marked, because the recording may have ended before
// their backward pass. A recording of at least three steps without any backward
// pass or optimizer shows inference: then all its graphs are unused, one or
// more per step.
std::vector<UnusedGraph> FindUnusedGraphs(const Trace& trace,
                                          const OpTree& tree,
                                          const Steps& steps);

// The phases of `thread` named "validate", disjoint.
std::vector<Span> ValidationPasses(const Trace& trace, RowId thread);

// The loader ranges of `thread` that wait for the first batch of a validation
// pass, sorted by row. Their loader has only just started, so no worker can
// have made that batch in advance, however many there are.
std::vector<RowId> OpeningLoads(const Trace& trace, RowId thread);

// The checks of anomaly mode: the outermost ops directly below a backward node
// that look for NaN (isnan, any, item).
std::vector<RowId> FindNanChecks(const Trace& trace);

// True if the recorded settings say that anomaly mode was on in at least 90 %
// of the steps, false if in fewer; nullopt if the recording has no settings.
std::optional<bool> RecordedAnomalyMode(const Trace& trace);

}  // namespace stepscope
