// Translates device numbers. ROCm numbers the devices of kernels and copies as
// HSA does, CPUs first; device properties and memory events use PyTorch's
// numbers, which count GPUs only. On other platforms both are the same.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

namespace stepscope {

// Returns the recorded properties of the device on which activities have the
// number `device`. If the run lists no such number but all listed devices have
// one name, returns one of these. The result's ordinal is `device`; its other
// fields are empty if nothing is known.
Device DescribedDevice(const RunInfo& run, int32_t device);

// Returns the number that memory events use for that device. It is `device`,
// unless all events name the same other device: then it is that device.
int32_t MemoryDevice(const Trace& trace, int32_t device);

}  // namespace stepscope
