// The tables of a comparison: causes, ops and kernels of two runs side by side.
#pragma once

#include <stepscope/compare.h>

#include "context/analysis_context.h"

namespace stepscope {

// Fills `causes`, `ops`, `kernels`, `modules` and `shared_ops_frac`. REQUIRES:
// comparison.before and comparison.after are filled; `first` and `second` are
// the reports of `before` and `after`.
void CompareTables(const AnalysisContext& before, const AnalysisContext& after,
                   const Report& first, const Report& second,
                   Comparison& comparison);

}  // namespace stepscope
