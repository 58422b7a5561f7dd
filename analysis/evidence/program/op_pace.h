// How much longer ops take than the same ops at their best, on a CPU-only run:
// what others on its cores may cost it.
#pragma once

#include "context/analysis_context.h"

namespace stepscope {

// Returns the time in ns per steady step that computing ops take beyond the
// fastest tenth of the ops with the same name and sizes. 0 without shapes, and
// on a run with a GPU.
double SlowedNs(const AnalysisContext& context);

}  // namespace stepscope
