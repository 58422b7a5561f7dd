// CounterSampler: hardware counters of some devices, read on a separate thread
// while a window is open. Claiming the counters takes tens of milliseconds or
// more and is also done on that thread. The program therefore never waits, but
// the first samples of a window may be missing.
//
// The counters stay claimed between windows, because releasing them may detach
// CUPTI from the process. They are released when the collector and all windows
// are gone.
//
// One thread drives it. In a forked child only Abandon() may be called.
#pragma once

#include <stepscope/event.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "counters/device_counters.h"

namespace stepscope {

// The counts of one window. Filled by the sampler's thread after Stop().
class CounterWindow {
 public:
  struct Counted {
    std::vector<CounterSample> samples;  // each device's in order of time
    std::vector<Loss> losses;
    // CUPTI's time when each device began to count. Shows whether samples have
    // the same clock.
    std::map<int32_t, uint64_t> begun;
  };
  // Waits at most `most` for the last samples. May be called once.
  Counted Await(std::chrono::milliseconds most);

 private:
  friend class CounterSampler;
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  Counted counted_;
};

class CounterSampler {
 public:
  // Room for 13 s of eight devices at 10,000 samples per second.
  static constexpr size_t kMostSamples = size_t{1} << 20;
  static constexpr int64_t kReadEveryNs = 20'000'000;

  // REQUIRES: `api` has counters(). `hz`: samples per second and device.
  CounterSampler(std::shared_ptr<CuptiApi> api, int32_t hz,
                 int64_t read_every_ns = kReadEveryNs)
      : api_(std::move(api)), hz_(hz), read_every_ns_(read_every_ns) {}
  CounterSampler(const CounterSampler&) = delete;
  CounterSampler& operator=(const CounterSampler&) = delete;
  ~CounterSampler();

  // Starts counting on those of the devices that are in use. False if none is
  // in use, or if no thread can be started.
  bool Start(const std::vector<DeviceLimits>& devices);
  // Ends the window without waiting. Returns null if none is open.
  std::shared_ptr<CounterWindow> Stop();

  // For a forked child, which does not have the thread: abandons the sampler
  // without destroying it.
  static void Abandon(std::shared_ptr<CounterSampler> sampler);

 private:
  struct Open {
    std::shared_ptr<CounterWindow> window;
    std::vector<DeviceLimits> devices;
    bool is_ending = false;
  };
  struct Place {  // one device's state
    // Destroyed only when the thread ends, because releasing counters may
    // detach CUPTI.
    std::unique_ptr<DeviceCounters> counters;
    absl::Status opened = absl::UnknownError("not tried");
    bool is_on = false;
  };
  void Run();
  void Count(Open& open);
  void Begin(const DeviceLimits& device, CounterWindow::Counted& counted);
  void Read(CounterWindow::Counted& counted, bool is_last);
  void Fail(int32_t device, Place& place, const absl::Status& why,
            CounterWindow::Counted& counted);

  const std::shared_ptr<CuptiApi> api_;
  const int32_t hz_;
  const int64_t read_every_ns_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::thread thread_;
  bool quit_ = false;
  std::shared_ptr<Open> open_;               // the window that is open
  std::deque<std::shared_ptr<Open>> queue_;  // not yet begun by the thread
  std::map<int32_t, Place> places_;          // by ordinal; the thread's own
};

}  // namespace stepscope
