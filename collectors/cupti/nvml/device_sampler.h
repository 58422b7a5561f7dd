// DeviceSampler: clocks, power, temperature, throttle reasons and link rates of
// some devices, read regularly on a thread of its own while a window is open.
// Between windows the thread sleeps.
//
// One thread drives it; it waits for the sampler's thread only when it is
// destroyed (at most one reading, 0.1 s). In a forked child only Abandon() may
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
  // Between two readings: 20 a second. A reading of the links takes 40 ms, so
  // every fifth one has them.
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

  // Samples these devices from now on. False, and nothing happens, if the
  // library knows none of them or there can be no thread.
  bool Start(const std::vector<DeviceLimits>& devices);
  // Stops sampling and returns the samples since Start(), in order of time.
  // Does not wait for a reading that is being taken.
  std::vector<DeviceSample> Stop();

  // In a forked child, which does not have the thread: forgets it.
  static void Abandon(std::unique_ptr<DeviceSampler> sampler);

 private:
  struct Place {  // of a device that is sampled
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
