// FakeNvml: an NVML with devices that a test describes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "nvml/nvml_api.h"

namespace stepscope {

class FakeNvml {
 public:
  struct Device {
    DeviceUuid uuid = {};
    NvmlReading reading = {};
  };
  // Returns an api object. It must not outlive this object.
  std::unique_ptr<NvmlApi> Api();
  void SetDevices(std::vector<Device> devices) {
    const std::lock_guard lock(mutex_);
    devices_ = std::move(devices);
  }
  // From now on, `bytes` move over NVLink between two readings.
  void SendPerReading(int64_t bytes) { bytes_per_reading_ = bytes; }
  int readings() const { return readings_; }
  int readings_of_links() const { return readings_of_links_; }

 private:
  class Handles;
  std::mutex mutex_;
  std::vector<Device> devices_;
  std::atomic<int64_t> bytes_per_reading_{0};
  std::atomic<int> readings_{0};
  std::atomic<int> readings_of_links_{0};
};

}  // namespace stepscope
