#include "nvml/device_sampler.h"

#include <pthread.h>
#include <stepscope/clock.h>
#include <stepscope/signals_blocked.h>

#include <chrono>
#include <new>
#include <system_error>
#include <utility>

namespace stepscope {
namespace {

// Returns bytes per second, or -1 if one of the two counts is unknown.
int64_t RateOf(int64_t before, int64_t now, int64_t passed_ns) {
  // A count that decreased was reset.
  if (before < 0 || now < before || passed_ns <= 0) return -1;
  return static_cast<int64_t>(static_cast<double>(now - before) * 1e9 /
                              static_cast<double>(passed_ns));
}

}  // namespace

DeviceSampler::~DeviceSampler() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    on_ = false;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeviceSampler::Abandon(std::unique_ptr<DeviceSampler> sampler) {
  (void)sampler.release();
}

bool DeviceSampler::Start(const std::vector<DeviceLimits>& devices) {
  std::vector<Place> places;
  for (const DeviceLimits& device : devices) {
    // A rank may see eight devices but use only one.
    if (!device.is_in_use) continue;
    NvmlApi::Handle handle = nvml_->Find(device.uuid);
    if (handle == nullptr) continue;
    places.push_back({.handle = handle, .ordinal = device.ordinal});
  }
  if (places.empty()) return false;
  {
    const std::lock_guard lock(mutex_);
    places_ = std::move(places);
    samples_.clear();
    samples_.reserve(kMostSamples);
    ++window_;
    on_ = true;
  }
  if (!thread_.joinable()) {
    const SignalsBlocked blocked;
    try {
      thread_ = std::thread([this] {
        try {
          Run();
        } catch (const std::bad_alloc&) {  // no more samples
        }
      });
    } catch (const std::system_error&) {  // no more threads
    }
  }
  wake_.notify_all();
  return thread_.joinable();
}

std::vector<DeviceSample> DeviceSampler::Stop() {
  const std::lock_guard lock(mutex_);
  on_ = false;
  return std::exchange(samples_, {});
}

// Reads without the lock, so that Stop() does not have to wait.
void DeviceSampler::Run() {
  pthread_setname_np(pthread_self(), "stepscope-nvml");
  std::unique_lock lock(mutex_);
  for (int reading = 0;; ++reading) {
    wake_.wait(lock, [&] { return on_ || quit_; });
    if (quit_) return;
    const uint64_t window = window_;
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Place> places = places_;
    std::vector<DeviceSample> samples;
    lock.unlock();
    for (Place& place : places) {
      // Read the links only in some readings, because they take most of the
      // time between two readings (kLinksEvery).
      samples.push_back(ReadOne(place, reading % kLinksEvery == 0));
    }
    lock.lock();
    // Keep the reading only if its window is still open.
    if (on_ && window == window_) {
      // `places` also has the link counts, from which the next reading computes
      // rates.
      places_ = std::move(places);
      for (const DeviceSample& sample : samples) {
        if (samples_.size() < kMostSamples) samples_.push_back(sample);
      }
    }
    wake_.wait_until(lock, begin + std::chrono::nanoseconds(every_ns_),
                     [&] { return !on_ || quit_; });
  }
}

DeviceSample DeviceSampler::ReadOne(Place& place, bool with_links) {
  const NvmlReading reading = nvml_->Read(place.handle, with_links);
  DeviceSample sample;
  sample.time_ns = NowNs();
  sample.device = place.ordinal;
  sample.sm_clock_mhz = reading.sm_clock_mhz;
  sample.memory_clock_mhz = reading.memory_clock_mhz;
  sample.throttle_reasons = reading.throttle_reasons;
  sample.temperature_c = reading.temperature_c;
  sample.power_mw = reading.power_mw;
  sample.power_limit_mw = reading.power_limit_mw;
  sample.fan_percent = reading.fan_percent;
  if (!with_links) return sample;
  const int64_t passed_ns = sample.time_ns - place.at_ns;
  sample.pcie_sent_bytes_per_s = reading.pcie_sent_bytes_per_s;
  sample.pcie_received_bytes_per_s = reading.pcie_received_bytes_per_s;
  sample.nvlink_sent_bytes_per_s =
      RateOf(place.sent_bytes, reading.nvlink_sent_bytes, passed_ns);
  sample.nvlink_received_bytes_per_s =
      RateOf(place.received_bytes, reading.nvlink_received_bytes, passed_ns);
  place.sent_bytes = reading.nvlink_sent_bytes;
  place.received_bytes = reading.nvlink_received_bytes;
  place.at_ns = sample.time_ns;
  return sample;
}

}  // namespace stepscope
