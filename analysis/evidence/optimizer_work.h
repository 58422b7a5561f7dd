// OptimizerWork: how the optimizer updates the parameters. Its rule and the
// comparison of two runs read it.
#pragma once

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
};
OptimizerWork MeasureOptimizer(const AnalysisContext& context);

// True if one of the spans contains `time`. REQUIRES: spans are disjoint.
bool LiesIn(const std::vector<Span>& spans, int64_t time);

}  // namespace stepscope
