#include "counters/counter_sampler.h"

#include <pthread.h>
#include <stepscope/signals_blocked.h>

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace stepscope {

CounterWindow::Counted CounterWindow::Await(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  if (!done_.wait_for(lock, most, [&] { return is_done_; })) {
    counted_.losses.push_back(
        {.name = "cupti-counters-late",
         .detail = "the hardware counters were not read to the end of the "
                   "window in time; their last samples are missing",
         .count = -1,
         .severity = Severity::kWarning});
  }
  return std::exchange(counted_, {});
}

CounterSampler::~CounterSampler() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CounterSampler::Abandon(std::shared_ptr<CounterSampler> sampler) {
  (void)new std::shared_ptr<CounterSampler>(std::move(sampler));
}

bool CounterSampler::Start(const std::vector<DeviceLimits>& devices) {
  auto open = std::make_shared<Open>();
  open->window = std::make_shared<CounterWindow>();
  for (const DeviceLimits& device : devices) {
    // A rank sees all devices of a machine, but the counters of the others
    // belong to other ranks.
    if (device.is_in_use) open->devices.push_back(device);
  }
  if (open->devices.empty()) return false;
  {
    const std::lock_guard lock(mutex_);
    open_ = open;
    queue_.push_back(std::move(open));
  }
  if (!thread_.joinable()) {
    const SignalsBlocked blocked;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {  // no more threads
    }
  }
  wake_.notify_all();
  return thread_.joinable();
}

std::shared_ptr<CounterWindow> CounterSampler::Stop() {
  const std::lock_guard lock(mutex_);
  if (open_ == nullptr) return nullptr;
  open_->is_ending = true;
  wake_.notify_all();
  return std::exchange(open_, nullptr)->window;
}

// Only this thread calls CUPTI, and it does so without the lock.
void CounterSampler::Run() {
  pthread_setname_np(pthread_self(), "stepscope-pm");
  for (;;) {
    std::shared_ptr<Open> open;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return quit_ || !queue_.empty(); });
      // With quit_ set, a waiting window is still counted, and ends at once.
      if (queue_.empty()) break;
      open = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      Count(*open);
    } catch (const std::bad_alloc&) {  // no more samples
    }
    const std::lock_guard lock(open->window->mutex_);
    open->window->is_done_ = true;
    open->window->done_.notify_all();
  }
  places_.clear();
}

void CounterSampler::Count(Open& open) {
  CounterWindow::Counted counted;
  for (const DeviceLimits& device : open.devices) Begin(device, counted);
  const auto pause = std::chrono::nanoseconds(read_every_ns_);
  for (bool is_ending = false; !is_ending;) {
    {
      std::unique_lock lock(mutex_);
      is_ending =
          wake_.wait_for(lock, pause, [&] { return open.is_ending || quit_; });
    }
    Read(counted, is_ending);
  }
  const std::lock_guard lock(open.window->mutex_);
  // If Await() has given up already, it has reported that.
  open.window->counted_ = std::move(counted);
}

void CounterSampler::Fail(int32_t device, Place& place, const absl::Status& why,
                          CounterWindow::Counted& counted) {
  if (std::exchange(place.is_on, false)) (void)place.counters->Stop();
  place.opened = why;
  counted.losses.push_back({.name = "cupti-counters-unavailable",
                            .detail = "no hardware counters of GPU " +
                                      std::to_string(device) + ": " +
                                      std::string(why.message()) +
                                      ". Everything else is recorded",
                            .count = -1,
                            .severity = Severity::kWarning});
}

void CounterSampler::Begin(const DeviceLimits& device,
                           CounterWindow::Counted& counted) {
  Place& place = places_[device.ordinal];
  // A missing permission is final. Other failures are tried again, because
  // another tool may release the counters.
  if (!place.opened.ok() && !absl::IsPermissionDenied(place.opened)) {
    if (place.counters == nullptr) {
      place.counters = std::make_unique<DeviceCounters>(*api_, device, hz_);
    }
    place.opened = place.counters->Open();
  }
  if (!place.opened.ok()) {
    return Fail(device.ordinal, place, absl::Status(place.opened), counted);
  }
  if (const std::string missing = place.counters->missing(); !missing.empty()) {
    counted.losses.push_back(
        {.name = "cupti-counters-partial",
         .detail = "GPU " + std::to_string(device.ordinal) +
                   " has no hardware counter of its " + missing +
                   " that can be sampled together with the others",
         .count = -1,
         .severity = Severity::kNote});
  }
  if (absl::Status s = place.counters->Start(); !s.ok()) {
    return Fail(device.ordinal, place, s, counted);
  }
  place.is_on = true;
  uint64_t now = 0;
  // CuptiRecording cuts off what was counted before this moment.
  if (api_->GetTimestamp(&now) == CUPTI_SUCCESS) {
    counted.begun[device.ordinal] = now;
  }
}

void CounterSampler::Read(CounterWindow::Counted& counted, bool is_last) {
  for (auto& [device, place] : places_) {
    if (!place.is_on) continue;
    if (is_last) {
      // Stop() does not lose counts: those until now are read below.
      if (absl::Status s = place.counters->Stop(); !s.ok()) {
        Fail(device, place, s, counted);
        continue;
      }
    }
    const size_t before = counted.samples.size();
    if (absl::Status s = place.counters->Read(counted.samples); !s.ok()) {
      Fail(device, place, s, counted);
      continue;
    }
    if (counted.samples.size() > kMostSamples) {
      counted.samples.resize(std::max(before, kMostSamples));
      if (before <= kMostSamples) {
        counted.losses.push_back(
            {.name = "cupti-counters-full",
             .detail = "the window has more samples of hardware counters than "
                       "are kept (" +
                       std::to_string(kMostSamples) +
                       "), and the newest are missing; take fewer a second, "
                       "or record fewer steps",
             .count = -1,
             .severity = Severity::kWarning});
      }
    }
    if (!is_last) continue;
    place.is_on = false;
    if (place.counters->overflows() > 0) {
      counted.losses.push_back(
          {.name = "cupti-counters-overflow",
           .detail = "the buffer for the hardware counters of GPU " +
                     std::to_string(device) +
                     " was full, and samples are missing; take fewer a second",
           .count = place.counters->overflows(),
           .severity = Severity::kWarning});
    }
  }
}

}  // namespace stepscope
