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

// True if a collector did not run. Its events are not lost, because the trace
// does not claim to contain them. It is an error only if no collector could
// run.
bool CollectorDidNotRun(const Loss& loss);

// True if ops may be missing in places where the trace seems to show that none
// ran.
bool MayLackOps(const Trace& trace);

}  // namespace stepscope
