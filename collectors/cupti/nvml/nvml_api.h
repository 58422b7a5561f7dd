// NvmlApi: the calls of NVIDIA's management library (libnvidia-ml.so.1) that
// the collector needs, loaded at run time, behind an interface. CUPTI reads
// clocks and power through the same library, but looks for it under another
// name and uses NVML's device numbers, which ignore CUDA_VISIBLE_DEVICES.
//
// Any thread may call it. In a forked child nothing may be called.
#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "api/cuda_driver.h"

namespace stepscope {

// What the library knows about a device at one moment; -1: unknown.
struct NvmlReading {
  int32_t sm_clock_mhz = -1;
  int32_t memory_clock_mhz = -1;
  int64_t throttle_reasons = -1;  // bits; the lowest four equal CUPTI's
  int32_t temperature_c = -1;
  int32_t power_mw = -1;
  int32_t power_limit_mw = -1;
  int32_t fan_percent = -1;
  // The mean of the last 20 ms.
  int64_t pcie_sent_bytes_per_s = -1;
  int64_t pcie_received_bytes_per_s = -1;
  // Since the driver was loaded, over all links.
  int64_t nvlink_sent_bytes = -1;
  int64_t nvlink_received_bytes = -1;
};

class NvmlApi {
 public:
  using Handle = void*;
  virtual ~NvmlApi() = default;

  // Returns the device or, with MIG, the whole device that contains the
  // instance; null if the library does not know it.
  virtual Handle Find(const DeviceUuid& uuid) = 0;
  // `with_links`: also reads PCIe and NVLink, which takes 40 ms.
  virtual NvmlReading Read(Handle device, bool with_links) = 0;
};

// The text by which NVML identifies a device: `prefix` ("GPU-" or "MIG-") and
// the UUID in hexadecimal.
std::string UuidText(const char* prefix, const DeviceUuid& uuid);

// Loads the library. If `path` is empty, tries $STEPSCOPE_NVML_LIBRARY and then
// libnvidia-ml.so.1. Unavailable if there is none or its initialisation fails.
absl::StatusOr<std::unique_ptr<NvmlApi>> LoadNvml(const std::string& path = {});

}  // namespace stepscope
