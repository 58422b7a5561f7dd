// CudaDriver: the driver calls that the collector needs besides CUPTI, loaded
// at run time from the library that the program itself uses.
//
// A recording never initialises CUDA, so that a program that has not used the
// GPU can still fork. Any thread of the process that loaded the driver may call
// it.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace stepscope {

// Identifies a device, or an instance of it (MIG), on all machines. All zeros
// if unknown.
using DeviceUuid = std::array<uint8_t, 16>;

// A device: the limits that occupancy depends on, and the facts for its Device
// row in the Trace.
struct DeviceLimits {
  // The position among the devices that the process sees
  // (CUDA_VISIBLE_DEVICES), which is also PyTorch's number.
  int32_t ordinal = 0;
  DeviceUuid uuid = {};
  bool is_in_use = false;  // its primary context is active
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

  // Initialises CUDA. Used only by `stepscope doctor`. Unavailable, with the
  // driver's error number, if that fails; NotFound if there is no device.
  virtual absl::Status Initialize() = 0;
  // OK if the program has initialised CUDA; otherwise Unavailable with a
  // message.
  virtual absl::Status InUse() const = 0;
  // The CUDA version that the driver supports, 13000 for 13.0; 0 if unknown.
  virtual int version() const = 0;
  // The devices that are visible to this process.
  virtual std::vector<DeviceLimits> Devices() const = 0;
  // Waits for every device whose primary context is active.
  virtual absl::Status Synchronize() = 0;
  // Returns free and total memory of the calling thread's current device. False
  // if the thread has no current device.
  virtual bool MemoryOfCurrentDevice(int32_t* device, int64_t* free_bytes,
                                     int64_t* total_bytes) const = 0;
};

// Loads the driver. If `path` is empty, tries the loaded library,
// $STEPSCOPE_CUDA_LIBRARY, and the loader's search path, in this order.
// Unavailable ("no NVIDIA driver found: recording CPU only") if there is none.
absl::StatusOr<std::unique_ptr<CudaDriver>> LoadCudaDriver(
    const std::string& path = {});

}  // namespace stepscope
