// How much longer ops take than at their best on a CPU-only run.
#pragma once

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

}  // namespace stepscope
