// Gradient passes: the backward passes of each optimizer step, with the
// collectives that reduce their gradients over the ranks.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "device/collectives.h"
#include "edit/edit.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// One backward pass that reduced gradients. A pass ends where a forward pass
// begins.
struct GradientPass {
  size_t step = 0;     // of Steps::windows
  int64_t update = 0;  // passes of one optimizer step share it
  std::vector<size_t> collectives = {};  // indices, in order of issue
  int64_t bytes = 0;                     // of those whose size is known
  bool sizes_known = true;
  Span backward = {};  // from its first backward node to its last
  std::vector<RowId> parameters = {};  // AccumulateGrad nodes, in time order
};

// In time order, steady steps only.
std::vector<GradientPass> FindGradientPasses(
    const Trace& trace, const OpTree& tree, const Steps& steps,
    const std::vector<Collective>& collectives);

// The kernel of `one`, for an Edit. REQUIRES: it has one.
inline ActivityRef KernelOf(const Collective& one) {
  return {ActivityTable::kKernel, one.kernel};
}

// The best bytes per second over the bus that a collective of at least 1 MiB
// reached here; 0 if no size is known.
double BestBusBandwidth(const std::vector<Collective>& collectives,
                        int32_t world_size);

// The same, or, where all are smaller, what the device's bus gives: links
// between devices are seldom slower. 0 if that is unknown, too.
struct BusBandwidth {
  double bytes_per_s = 0;
  bool seen = false;
};
BusBandwidth LikelyBusBandwidth(const Trace& trace,
                                const std::vector<Collective>& collectives);

// What the collective takes at `bandwidth` once all ranks are there, in ns; -1
// if its size is unknown.
double TransferNs(const Collective& one, double bandwidth, int32_t world_size);

}  // namespace stepscope
