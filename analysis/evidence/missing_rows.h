// Signs in a recording that some of its rows are missing.
#pragma once

#include <stepscope/trace.h>

#include <string>

namespace stepscope {

// Returns at most two names of ops and ranges that occur only in programs that
// use a GPU, "aten::cudnn_batch_norm, nccl:all_reduce"; "" if there are none.
// If the recording has no activities, such names show that the GPU was not
// recorded.
std::string SignsOfGpu(const Trace& trace);

// Returns the name of a device ("MTIA", "Ascend NPU"), other than NVIDIA's and
// AMD's, on which the program computes without that work being in the trace.
// Returns "" if there is no sign of one, or if activities were recorded. Such a
// trace shows only the host's time.
std::string UnseenAccelerator(const Trace& trace);

}  // namespace stepscope
