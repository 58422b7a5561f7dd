// DeviceCounters: the hardware counters of one device, which the device itself
// samples at a fixed interval (CUPTI's PM sampling): how busy its
// multiprocessors, Tensor Cores and memory are. The program runs unchanged, but
// only one tool at a time can have the counters.
//
// One thread at a time.
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
  // Claims nothing yet. `api` must outlive this object. REQUIRES: `api` has
  // counters(), and hz > 0 (samples per second).
  DeviceCounters(CuptiApi& api, const DeviceLimits& device, int32_t hz);
  // Releases the counters, which may detach CUPTI from the process (a note in
  // XLA's sources). Nothing else here detaches it.
  ~DeviceCounters();
  DeviceCounters(const DeviceCounters&) = delete;
  DeviceCounters& operator=(const DeviceCounters&) = delete;

  // Claims and configures the counters. May be called again after an error.
  // Errors: PermissionDenied, with the remedy; Unavailable if the device cannot
  // be sampled or has none of the counters; Internal.
  absl::Status Open();

  // All functions below REQUIRE that Open() succeeded.
  absl::Status Start();
  absl::Status Stop();
  // Appends the samples since the last call.
  absl::Status Read(std::vector<CounterSample>& samples);

  // The counters that the device lacks, in words (CounterChoice).
  std::string missing() const { return choice_.missing(); }
  // How often, since Start(), the device had no room for its counts.
  int64_t overflows() const { return overflows_; }
  // False if the interval is in clock cycles of the device. Clocks vary, so
  // samples are then not equally long.
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
