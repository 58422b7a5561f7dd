// Signs in a recording that some of its rows are missing.
#pragma once

#include <stepscope/trace.h>

#include <string>

namespace stepscope {

// Returns at most two names of ops and ranges that occur only in programs that
// use a GPU, "aten::cudnn_batch_norm, nccl:all_reduce"; "" if there are none.
// In a recording without activities they show that the GPU was not recorded.
std::string SignsOfGpu(const Trace& trace);

// Returns the name of a device beside NVIDIA's and AMD's on which the program
// computes and whose work is not in the trace ("MTIA", "Ascend NPU"); "" if
// there is no sign of one, or if activities were recorded. What such a trace
// shows is the host's time alone.
std::string UnseenAccelerator(const Trace& trace);

}  // namespace stepscope
