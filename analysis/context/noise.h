// How much the steps of a recording vary by chance, and the smallest gain that
// is worth reporting despite that variation.
#pragma once

#include "context/analysis_context.h"

namespace stepscope {

// Standard deviation / median of the steady steps. Two parts that are not
// chance are left out: data loading, and what the sizes of the inputs explain.
// The deviation is the smaller of the ordinary one and the robust one (1.4826 *
// median absolute deviation), so that one slow step does not hide every gain. 0
// with fewer than two steady steps.
double RobustCov(const AnalysisContext& context);

// The smallest gain per step worth reporting, in ms: 1 % of the mean step, or
// two standard errors of it where steps vary by more than 1 %; at least 0.1 ms.
double MinReportableGainMs(const AnalysisContext& context);

}  // namespace stepscope
