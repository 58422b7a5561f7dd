// OptimizerWork: how the optimizer updates the parameters. Used by the
// optimizer rule and by the comparison of two runs.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// All values are for the steady steps.
struct OptimizerWork {
  std::vector<Span> spans;  // of optimizer steps on the host, disjoint
  bool inferred = false;    // from ops: no range marks the optimizer
  double parameters = 0;    // number of parameters with a gradient
  double updates = 0;       // update ops per step; launches on a run with a GPU
  double host_ns = 0;       // host time per step
  double overhead_ns = 0;   // the part of host_ns in which nothing is computed;
                            // CPU-only runs
  bool grouped = false;     // it uses foreach or fused ops
  bool fused = false;       // it uses fused ops
  // Time of a fused step divided by the time of the recorded ops, which update
  // one parameter each; at most 1. Only for CPU-only runs with shapes; -1:
  // unknown.
  double fused_left = -1;
  // Bytes that a fused step would move, divided by the bytes that the recorded
  // foreach ops moved, on any run. Uses recorded sizes; without sizes, counts
  // the tensors that each op reads and writes. -1: no foreach ops.
  double foreach_traffic = -1;
  // Time of a fused step divided by the time of the foreach ops, on a CPU.
  // Equals foreach_traffic if sizes were not recorded.
  double foreach_left = -1;
  int64_t foreach_ops = 0;  // number in all steady steps
  std::string name = {};    // the class: "AdamW"; "" if no range names it
};
OptimizerWork MeasureOptimizer(const AnalysisContext& context);

// Returns "AdamW" for the range "Optimizer.step#AdamW.step"; "" for other
// ranges.
std::string_view OptimizerOf(const Trace& trace, const Range& range);

// Return the change that fuses the optimizer's step, "torch.optim.AdamW(...,
// fused=True)", and the function for C++, "at::_fused_adamw_". They name the
// optimizer of the recording if it has a fused version.
std::string FusedOptimizerInPython(const OptimizerWork& work);
std::string FusedOptimizerInCpp(const OptimizerWork& work);

// Pairs of (time per element or byte moved, amount moved at that pace). "Moved"
// means read or written.
using Paces = std::vector<std::pair<double, double>>;

// Returns the pace that half of the moved amount reaches or beats. The slower
// half writes to new memory, which an in-place update does not.
double MedianPace(Paces paces);

}  // namespace stepscope
