// GradientPasses: the backward passes of each optimizer step, with the
// collectives that reduce their gradients over the ranks. Also the bandwidth
// that collectives reach.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "context/analysis_context.h"
#include "device/collectives.h"
#include "edit/edit.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// True if the program trains: a backward pass was recorded.
bool Trains(const Trace& trace);
// True if the program seems to run a model without training it: ops were
// recorded, but neither a backward pass nor an update of parameters.
bool OnlyInfers(const AnalysisContext& context);
// The assumption that findings state if OnlyInfers().
inline constexpr char kSeemsToInfer[] =
    "the program only runs the model: neither a backward pass nor an update of "
    "parameters was recorded";

// A backward pass that reduced gradients. It ends where the next forward pass
// starts.
struct GradientPass {
  size_t step = 0;     // index into Steps::windows
  int64_t update = 0;  // number of the optimizer step; passes with the same
                       // number accumulate gradients
  std::vector<size_t> collectives = {};  // indices, in order of issue
  int64_t bytes = 0;                     // of the collectives with known size
  bool sizes_known = true;               // all sizes are known
  Span backward =
      {};  // from the start of its first node to the end of its last
  std::vector<RowId> parameters = {};  // AccumulateGrad nodes, in time order
};

// Returns the passes of the steady steps in time order.
// REQUIRES: collectives is FindCollectives() of the same Trace.
std::vector<GradientPass> FindGradientPasses(
    const Trace& trace, const OpTree& tree, const Steps& steps,
    const std::vector<Collective>& collectives);

// Returns the kernel of `one`, for an Edit. REQUIRES: one.kernel != kNone.
inline ActivityRef KernelOf(const Collective& one) {
  return {ActivityTable::kKernel, one.kernel};
}

// Returns the best bus bandwidth, in bytes/s, that a collective of at least 1
// MiB reached in this recording; 0 if none has a known size. Smaller
// collectives are limited by latency. `world_size` is used for groups of
// unknown size.
double BestBusBandwidth(const std::vector<Collective>& collectives,
                        int32_t world_size);

// An estimate of the bandwidth that larger collectives would reach.
struct BusBandwidth {
  double bytes_per_s = 0;  // 0: unknown
  bool seen = false;       // measured in this recording
};
// Returns BestBusBandwidth(). If all collectives are small, returns the usual
// bandwidth of the device's PCIe bus instead, because links between devices are
// seldom slower.
BusBandwidth LikelyBusBandwidth(const Trace& trace,
                                const std::vector<Collective>& collectives);

// Returns the time in ns that the collective takes at `bandwidth` (bytes/s)
// once all ranks have arrived, at most its recorded time; -1 if its size is
// unknown.
double TransferNs(const Collective& one, double bandwidth, int32_t world_size);

}  // namespace stepscope
