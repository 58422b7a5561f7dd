// What a recording must have missed, judged by what is in it.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>

namespace stepscope {

// Names of ops and ranges that only programs on a GPU have, "aten::cudnn_batch_
// norm, nccl:all_reduce", at most two; empty if there are none.
std::string SignsOfGpu(const Trace& trace);

// Works of `device` without a recorded launch that run before anything of their
// stream that has one: what was launched before the recording began.
int64_t WorksLaunchedBefore(const Trace& trace, int32_t device);

}  // namespace stepscope
