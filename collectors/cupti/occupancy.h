// Estimates a kernel's occupancy from its launch and the device's limits.
// Source: the CUDA programming guide, "Compute Capabilities".
#pragma once

#include <cstdint>

#include "api/cuda_driver.h"

namespace stepscope {

// The part of a launch that occupancy depends on.
struct KernelShape {
  int64_t blocks = 0;  // of the whole grid
  int32_t threads_per_block = 0;
  int32_t registers_per_thread = 0;
  int32_t static_shared_bytes = 0;
  int32_t dynamic_shared_bytes = 0;
  // The part of the combined cache, in bytes, that was set aside as shared
  // memory while the kernel ran (CUPTI's sharedMemoryExecuted); 0 if unknown.
  int32_t shared_bytes_configured = 0;
};

// -1: the device or the launch is not known.
struct Occupancy {
  float blocks_per_sm = -1;  // the grid's blocks / the multiprocessors
  float warps_per_sm = -1;
  int32_t blocks_that_fit = -1;  // on one multiprocessor at a time
  float achieved_frac = -1;  // resident warps over the possible maximum, 0 to
                             // 1; a small grid limits it
};

// Estimates the occupancy. Pure. Knows capabilities 5.0 to 12.x and treats
// newer ones like 12.
Occupancy EstimateOccupancy(const KernelShape& kernel,
                            const DeviceLimits& device);

}  // namespace stepscope
