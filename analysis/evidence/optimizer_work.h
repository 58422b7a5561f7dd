// How the optimizer updates the parameters: what its rule, and comparing two
// runs, need to know.
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

// Where the optimizer steps on the training thread, in steady steps.
struct OptimizerWork {
  std::vector<Span> spans;
  bool inferred = false;
  double parameters = 0;
  double updates = 0;      // ops or launches per step
  double host_ns = 0;      // per step
  double overhead_ns = 0;  // of it outside computing; CPU-only runs
  bool grouped = false;    // foreach or fused
  bool fused = false;      // of these, fused
  // CPU-only runs with shapes: the bytes that a fused step moves / those that
  // the recorded ops moved; -1 unknown.
  double fused_traffic = -1;
};
OptimizerWork MeasureOptimizer(const AnalysisContext& context);

// True if `time` lies in one of the disjoint, ordered `spans`.
bool LiesIn(const std::vector<Span>& spans, int64_t time);

}  // namespace stepscope
