// How much longer ops take than at their best on a CPU-only run.
#pragma once

#include <string>

#include "context/analysis_context.h"
#include "replay/cpu/op_growth.h"

namespace stepscope {

// Returns the best rates of the ops that compute in the steady steps; nothing
// on a run with a GPU. The trace must outlive the result.
OpGrowth GrowthOf(const AnalysisContext& context);

// Returns the time in ns per steady step that computing ops take beyond the
// fastest tenth of the ops with the same name and sizes. This is what other
// work on the run's cores may cost it. 0 without shapes, and on a run with a
// GPU.
double SlowedNs(const AnalysisContext& context);

// Simple ops and matrix products that take longer than one core needs for them,
// however old it is.
struct StalledOps {
  double ns = 0;          // beyond what one core needs, per steady step
  double whole_ns = 0;    // the time of the same ops, per steady step
  std::string longest;    // "aten::mul [96, 8000]", the op that loses most
  double longest_ns = 0;  // its mean time
};
// Finds them on a CPU-only run recorded with shapes; nothing on other runs.
StalledOps FindStalledOps(const AnalysisContext& context);

}  // namespace stepscope
