// The time from the start of each launch call to the start of its kernel. Even
// in a correct recording a few are negative: CUPTI's own times disagree by
// microseconds where launches follow each other closely (pytorch/kineto#1380).
// So a test judges a quantile and prints the distribution.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Ascending, in nanoseconds. Left out are kernels of CUDA graphs, which share
// one call, and kernels whose call was not recorded.
std::vector<int64_t> LaunchLagsNs(const Trace& trace);

// The value below which `share` (0 to 1) of them lie. REQUIRES: `ascending` is
// not empty.
int64_t LagQuantileNs(const std::vector<int64_t>& ascending, double share);

// "12 of 4000 kernels begin before their call; least -800 ns, 1 % 1200 ns, …"
std::string LagText(const std::vector<int64_t>& ascending);

}  // namespace stepscope
