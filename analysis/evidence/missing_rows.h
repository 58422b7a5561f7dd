// Signs in a recording that some of its rows are missing.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>

namespace stepscope {

// Returns at most two names of ops and ranges that occur only in programs that
// use a GPU, "aten::cudnn_batch_norm, nccl:all_reduce"; "" if there are none.
// In a recording without activities they show that the GPU was not recorded.
std::string SignsOfGpu(const Trace& trace);

// Returns the number of activities of `device` without a recorded launch that
// run before the first activity of their stream with one: they were launched
// before the recording began. 0 if no launch was recorded at all.
int64_t ActivitiesLaunchedBefore(const Trace& trace, int32_t device);

}  // namespace stepscope
