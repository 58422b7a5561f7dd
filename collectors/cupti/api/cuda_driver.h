// CudaDriver: the few driver calls the collector needs beside CUPTI, loaded at
// run time from the copy the program itself uses.
//
// A recording never initialises CUDA: a program that has not used the GPU stays
// that way, and may still fork. Any thread may call it, in the process that
// loaded it.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stepscope {

// What the occupancy of a kernel depends on, and what a Trace says of a device.
struct DeviceLimits {
  int32_t ordinal = 0;
  std::string name;
  int64_t memory_bytes = -1;
  int64_t memory_bandwidth_bytes_per_s = -1;
  int32_t clock_khz = -1;
  int32_t compute_major = 0;
  int32_t compute_minor = 0;
  int32_t sm_count = 0;
  int32_t warp_size = 32;
  int32_t max_threads_per_sm = 0;
  int32_t max_blocks_per_sm = 0;
  int32_t regs_per_sm = 0;
  int32_t regs_per_block = 0;
  int32_t shared_bytes_per_sm = 0;
};

class CudaDriver {
 public:
  virtual ~CudaDriver() = default;

  // Initialises CUDA, in a process that only asks what there is. Unavailable
  // with the driver's own number if it cannot be.
  virtual absl::Status Initialize() = 0;
  // OK if the program has initialised CUDA; else Unavailable, saying so.
  virtual absl::Status InUse() const = 0;
  // CUDA's version as the driver supports it: 13000 for 13.0; 0 if unknown.
  virtual int version() const = 0;
  // Devices this process can see.
  virtual std::vector<DeviceLimits> Devices() const = 0;
  // Waits until the work of every device whose primary context is in use is
  // done.
  virtual absl::Status Synchronize() = 0;
  // Free and total memory of the device current on this thread; false where
  // there is none.
  virtual bool MemoryOfCurrentDevice(int32_t* device, int64_t* free_bytes,
                                     int64_t* total_bytes) const = 0;
};

// `path` empty: the loaded copy, then $STEPSCOPE_CUDA_LIBRARY, then the
// loader's path. Unavailable ("no NVIDIA driver found: recording CPU only") if
// there is none.
absl::StatusOr<std::unique_ptr<CudaDriver>> LoadCudaDriver(
    const std::string& path = {});

}  // namespace stepscope
