// DeviceSampler: clocks, power, temperature, throttle reasons and link rates of
// some devices, read regularly on a separate thread while a window is open.
// Between windows the thread sleeps.
//
// Used by one thread, which waits for the sampler's thread only in the
// destructor (at most one reading, 0.1 s). In a forked child only Abandon() may
// be called.
#pragma once

#include <stepscope/event.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "nvml/nvml_api.h"

namespace stepscope {

class DeviceSampler {
 public:
  // The time between two readings: 20 readings per second. Reading the links
  // takes 40 ms, so only every fifth reading includes them.
  static constexpr int64_t kEveryNs = 50'000'000;
  static constexpr int kLinksEvery = 5;
  // Room for 100 s of eight devices.
  static constexpr size_t kMostSamples = 16384;

  explicit DeviceSampler(std::unique_ptr<NvmlApi> nvml,
                         int64_t every_ns = kEveryNs)
      : nvml_(std::move(nvml)), every_ns_(every_ns) {}
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;
  ~DeviceSampler();

  // Samples these devices from now on. Returns false and does nothing if the
  // library knows none of them or no thread can be started.
  bool Start(const std::vector<DeviceLimits>& devices);
  // Stops sampling and returns the samples since Start(), in order of time.
  // Does not wait for a reading in progress.
  std::vector<DeviceSample> Stop();

  // For a forked child, which does not have the thread: abandons the sampler
  // without destroying it.
  static void Abandon(std::unique_ptr<DeviceSampler> sampler);

 private:
  struct Place {  // a device that is sampled
    NvmlApi::Handle handle = nullptr;
    int32_t ordinal = 0;
    int64_t sent_bytes = -1;  // over NVLink, at the previous reading
    int64_t received_bytes = -1;
    int64_t at_ns = 0;
  };
  void Run();
  DeviceSample ReadOne(Place& place, bool with_links);

  const std::unique_ptr<NvmlApi> nvml_;
  const int64_t every_ns_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
  bool quit_ = false;
  bool on_ = false;
  uint64_t window_ = 0;  // changes with each Start()
  std::vector<Place> places_;
  std::vector<DeviceSample> samples_;
};

}  // namespace stepscope
