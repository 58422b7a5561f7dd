// DeviceCounters: the hardware counters of one device, sampled by the device
// itself at a fixed interval (CUPTI's PM sampling): how busy its
// multiprocessors, its Tensor Cores and its memory are. Nothing of the program
// is changed for it, but the counters belong to one tool at a time.
//
// One thread at a time. Not run on a GPU yet.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/cuda_driver.h"
#include "counters/counter_choice.h"

namespace stepscope {

class DeviceCounters {
 public:
  // Claims nothing yet. `api` must outlive it. REQUIRES: it has counters(), and
  // hz > 0, samples a second.
  DeviceCounters(CuptiApi& api, const DeviceLimits& device, int32_t hz);
  // Gives the counters back, which may detach CUPTI from the process (a note in
  // XLA's sources). Nothing else does.
  ~DeviceCounters();
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;

  // Claims and configures the counters; after an error it may be called again.
  // Errors: PermissionDenied, with the remedy; Unavailable if the device cannot
  // be sampled, or has none of the counters; Internal.
  absl::Status Open();

  // REQUIRES of all that follow: Open() succeeded.
  absl::Status Start();
  absl::Status Stop();
  // Appends what was counted since the last call.
  absl::Status Read(std::vector<CounterSample>& samples);

  // The counters that the device lacks, in words (CounterChoice).
  std::string missing() const { return choice_.missing(); }
  // How often the device had no room for its counts since Start().
  int64_t overflows() const { return overflows_; }
  // False if the interval is in clocks of the device, which vary: then samples
  // are not equally long.
  bool is_regular() const { return is_regular_; }

 private:
  absl::Status CheckSupport();
  absl::Status ListAvailable(std::vector<uint8_t>& available);
  absl::Status Claim();
  absl::Status Configure();
  absl::Status ClearData();
  absl::Status Restart();
  absl::Status ReadOne(size_t index, std::vector<CounterSample>& samples);
  absl::Status Check(const char* attempt, CUptiResult code) const {
    return CheckCounters(api_, attempt, code);
  }

  CuptiApi& api_;
  const CounterFunctions& f_;
  const int32_t ordinal_;
  const int32_t clock_khz_;
  const int32_t hz_;
  CounterChoice choice_;
  std::vector<uint8_t> data_;
  CUpti_PmSampling_Object* sampling_ = nullptr;
  int64_t overflows_ = 0;
  bool is_regular_ = true;
  bool is_on_ = false;
};

}  // namespace stepscope
