// The time from the start of each launch call to the start of its kernel. Even
// correct recordings have a few negative ones: for launches in quick
// succession, CUPTI's own times disagree by microseconds (pytorch/kineto#1380).
// So a test checks a quantile and prints the distribution.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Returns the lags in ascending order, in ns. Leaves out kernels of CUDA
// graphs, which share one call, and kernels whose call was not recorded.
std::vector<int64_t> LaunchLagsNs(const Trace& trace);

// Returns the value below which the `share` (0 to 1) of the lags lies.
// REQUIRES: `ascending` is not empty.
int64_t LagQuantileNs(const std::vector<int64_t>& ascending, double share);

// Returns a text such as "12 of 4000 kernels begin before their call; least
// -800 ns, 1 % 1200 ns, …".
std::string LagText(const std::vector<int64_t>& ascending);

}  // namespace stepscope
