// How much the steps of a recording vary by chance, and the smallest gain that
// is worth reporting in spite of it.
#pragma once

#include "context/analysis_context.h"

namespace stepscope {

// Spread of the steady steps as a share of their median, loading left out: how
// long steps wait for batches varies for a known reason. The smaller of the
// plain and the robust standard deviation, so that one slow step does not hide
// everything. 0 with fewer than two steady steps.
double RobustCov(const AnalysisContext& context);

// By how much the mean step strays by chance, in ms: two standard errors.
double NoiseOfMeanMs(const AnalysisContext& context);

// The smallest gain per step worth reporting, in ms: 1 % of the mean step, or
// two standard errors of it where steps vary by more than 1 %; at least 0.1 ms.
double MinReportableGainMs(const AnalysisContext& context);

}  // namespace stepscope
