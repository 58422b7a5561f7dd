// How full a kernel keeps a multiprocessor: an estimate from its launch and the
// device's limits, as the CUDA programming guide's chapter on compute
// capabilities gives them.
#pragma once

#include <cstdint>

#include "api/cuda_driver.h"

namespace stepscope {

// The part of a launch that matters.
struct KernelShape {
  int64_t blocks = 0;  // of the whole grid
  int32_t threads_per_block = 0;
  int32_t registers_per_thread = 0;
  int32_t static_shared_bytes = 0;
  int32_t dynamic_shared_bytes = 0;
  // The share of the combined cache set aside as shared memory while it ran
  // (CUPTI's sharedMemoryExecuted); 0 if unknown.
  int32_t shared_bytes_configured = 0;
};

// -1 where the device or the launch is not known well enough.
struct Occupancy {
  float blocks_per_sm = -1;  // of the grid, were it spread evenly
  float warps_per_sm = -1;
  int32_t blocks_that_fit = -1;  // on one multiprocessor at a time
  float achieved_frac = -1;  // warps resident at once over the most possible,
                             // limited by the grid
};

// Pure. Capabilities 5.0 to 12.x; a newer one is taken to be like 12.
Occupancy EstimateOccupancy(const KernelShape& kernel,
                            const DeviceLimits& device);

}  // namespace stepscope
