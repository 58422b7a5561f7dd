// Launches: the runtime calls that give work to the device, and which of them
// launch CUDA graphs. Functions without state: safe from any thread.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

// When the steady steps launched their kernels: one sorted list per window of
// AnalysisContext::steps, empty for steps that are not steady. A CUDA graph is
// one launch, however many kernels it holds.
std::vector<std::vector<int64_t>> LaunchTimes(const AnalysisContext& context);

// True if the activity is a node of a CUDA graph. The nodes share one launch,
// and the trace does not show what each of them waits for.
bool InGraph(const Trace& trace, const ActivityRef& activity);

// When products and convolutions were launched, on any stream; sorted.
std::vector<int64_t> LaunchesOfProducts(const AnalysisContext& context);

// How many of the steady steps launch the same kernels with the same grids, at
// most: a CUDA graph repeats those that it was captured with.
size_t StepsAlike(const AnalysisContext& context);

// When the kernel was launched; 0 if that was not recorded.
int64_t LaunchedNs(const Trace& trace, RowId kernel);

}  // namespace stepscope
