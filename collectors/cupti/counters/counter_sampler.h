// CounterSampler: hardware counters of some devices, read on a thread of its
// own while a window is open. Claiming them takes tens of milliseconds or more,
// and that is done on this thread as well: the first samples of a window may
// be missing, and the program never waits.
//
// The counters stay claimed between windows, because giving them back may
// detach CUPTI from the process; they are given back when the collector and
// all windows are gone.
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

// What one window counted; filled by the sampler's thread after Stop().
class CounterWindow {
 public:
  struct Counted {
    std::vector<CounterSample> samples;  // of each device in order of time
    std::vector<Loss> losses;
    // CUPTI's time when each device began to count, to see whether samples have
    // the same clock.
    std::map<int32_t, uint64_t> begun;
  };
  // Waits at most so long for the last samples. Once.
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
  // Room for 13 s of eight devices at 10,000 a second.
  static constexpr size_t kMostSamples = size_t{1} << 20;
  static constexpr int64_t kReadEveryNs = 20'000'000;

  // `api` has counters(). `hz`: samples a second of each device.
  CounterSampler(std::shared_ptr<CuptiApi> api, int32_t hz,
                 int64_t read_every_ns = kReadEveryNs)
      : api_(std::move(api)), hz_(hz), read_every_ns_(read_every_ns) {}
  CounterSampler(const CounterSampler&) = delete;
  CounterSampler& operator=(const CounterSampler&) = delete;
  ~CounterSampler();

  // Counts on those of the devices that are in use. False if none is, or there
  // can be no thread.
  bool Start(const std::vector<DeviceLimits>& devices);
  // Ends the window without waiting. Null if none is open.
  std::shared_ptr<CounterWindow> Stop();

  // In a forked child, which does not have the thread: forgets it.
  static void Abandon(std::shared_ptr<CounterSampler> sampler);

 private:
  struct Open {
    std::shared_ptr<CounterWindow> window;
    std::vector<DeviceLimits> devices;
    bool is_ending = false;
  };
  struct Place {  // of a device
    // Given back only when the thread ends: that may detach CUPTI.
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
  std::deque<std::shared_ptr<Open>> queue_;  // that the thread has not begun
  std::map<int32_t, Place> places_;          // the thread's own, by ordinal
};

}  // namespace stepscope
