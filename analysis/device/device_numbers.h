// ROCm numbers the devices of kernels and copies as HSA does, processors first;
// deviceProperties and memory events number them as PyTorch does. Elsewhere all
// numbers are one.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

namespace stepscope {

// What the run tells of the device whose work has the number `device`; where it
// lists no such number, and all it lists are alike, one of these. Its ordinal
// is `device`.
Device DescribedDevice(const RunInfo& run, int32_t device);

// The number that memory events give that device: theirs, if they all are of
// one other device.
int32_t MemoryDevice(const Trace& trace, int32_t device);

}  // namespace stepscope
