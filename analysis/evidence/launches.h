// Launches: the runtime calls that give work to the device, and which of them
// launch CUDA graphs. The functions have no state, so any thread may call them.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

// Returns when the steady steps launched their kernels: one sorted list per
// window of AnalysisContext::steps, empty for steps that are not steady. A CUDA
// graph counts as one launch, however many kernels it holds.
std::vector<std::vector<int64_t>> LaunchTimes(const AnalysisContext& context);

// True if the activity is a node of a CUDA graph. All nodes share one launch,
// and the trace does not show what each node waits for.
bool InGraph(const Trace& trace, const ActivityRef& activity);

// Returns when matrix products and convolutions were launched on any stream,
// sorted.
std::vector<int64_t> LaunchesOfProducts(const AnalysisContext& context);

// Returns the largest number of steady steps that launch the same kernels with
// the same grids. A CUDA graph can replace only such steps, because it repeats
// the kernels that it was captured with.
size_t StepsAlike(const AnalysisContext& context);

// Returns when the kernel was launched; 0 if that was not recorded.
int64_t LaunchedNs(const Trace& trace, RowId kernel);

}  // namespace stepscope
