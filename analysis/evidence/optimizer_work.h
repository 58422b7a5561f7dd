// OptimizerWork: how the optimizer updates the parameters. Its rule and the
// comparison of two runs read it.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Figures of the steady steps.
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
  // Bytes that a fused optimizer would move / bytes that the recorded ops
  // moved, at most 1. CPU-only runs with shapes; -1: unknown.
  double fused_traffic = -1;
  // The same for foreach ops, on any run: by sizes where recorded, else each op
  // counts as many tensors as it reads and writes. -1: no foreach ops.
  double foreach_traffic = -1;
  // The time that a fused step would take / the time of the foreach ops, on a
  // CPU; foreach_traffic where sizes were not recorded.
  double foreach_left = -1;
  int64_t foreach_ops = 0;  // in all steady steps
  std::string name = {};    // the class: "AdamW"; "" if no range names it
};
OptimizerWork MeasureOptimizer(const AnalysisContext& context);

// "AdamW" of the range "Optimizer.step#AdamW.step"; "" for others.
std::string_view OptimizerOf(const Trace& trace, const Range& range);

// The change that fuses the optimizer's step, "torch.optim.AdamW(...,
// fused=True)", and the function for C++, "at::_fused_adamw_". They name the
// optimizer of the recording where it has a fused version.
std::string FusedOptimizerInPython(const OptimizerWork& work);
std::string FusedOptimizerInCpp(const OptimizerWork& work);

// Time per element or byte that is read or written, by how much is moved at
// that pace.
using Paces = std::vector<std::pair<double, double>>;

// The pace of half of what is moved, or a faster one. The other half is slower
// because it writes to new memory, which an update in place does not.
double MedianPace(Paces paces);

// True if one of the spans contains `time`. REQUIRES: spans are disjoint.
bool LiesIn(const std::vector<Span>& spans, int64_t time);

}  // namespace stepscope
