// CounterChoice: selects the wanted hardware counters that a chip has and can
// count in one pass, makes the configuration for the device, and turns its
// counts into values. All of it runs on the host and needs no device.
//
// One thread at a time.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "api/counter_functions.h"
#include "api/cupti_api.h"

namespace stepscope {

// The counts of one interval on a device. Times are on CUPTI's clock. Shares
// are relative to the device's maximum, 0 to 1, or -1 if it has no such
// counter.
struct CounterSample {
  uint64_t begin = 0;
  uint64_t end = 0;
  int32_t device = 0;
  float sm_active_frac = -1;      // multiprocessors with a warp on them
  float tensor_active_frac = -1;  // their Tensor Cores
  float dram_frac = -1;           // memory bandwidth
};

class CounterChoice {
 public:
  // `api` must outlive this object. REQUIRES: `api` has counters().
  explicit CounterChoice(CuptiApi& api);
  ~CounterChoice() { DropHost(); }
  CounterChoice(const CounterChoice&) = delete;
  CounterChoice& operator=(const CounterChoice&) = delete;

  // `chip` is CUPTI's name of it. `availability` is what the machine allows to
  // be counted, as CUPTI wrote it; empty: everything. Unavailable if the chip
  // has none of the counters; otherwise CUPTI's errors. May be called again.
  absl::Status Choose(const std::string& chip,
                      const std::vector<uint8_t>& availability);

  // The result of the last successful Choose().
  const std::vector<uint8_t>& config() const { return config_; }
  std::vector<const char*>& metrics() { return metrics_; }
  // The counters that were left out, in words: "Tensor Cores, memory"; "" if
  // none was.
  std::string missing() const;

  // Fills in the shares of sample `index` in `data`, which was decoded with
  // this configuration.
  absl::Status Evaluate(const std::vector<uint8_t>& data, size_t index,
                        CounterSample& sample);

 private:
  absl::Status MakeHost(const std::string& chip,
                        const std::vector<uint8_t>& availability);
  void DropHost();
  absl::Status Configure(std::vector<const char*>& metrics, size_t* passes);

  CuptiApi& api_;
  const CounterFunctions& f_;
  std::vector<const char*> metrics_;
  std::vector<float CounterSample::*> fields_;  // for each of metrics_
  std::vector<uint8_t> config_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
};

// For each counter, the names that are tried in order. The most important
// counter comes first.
std::vector<std::vector<const char*>> CounterNames();

// The counter functions of `api`. REQUIRES: `api` has them.
const CounterFunctions& CountersOf(const CuptiApi& api);
// Returns OK, or an error that names the attempt.
absl::Status CheckCounters(const CuptiApi& api, const char* attempt,
                           CUptiResult code);

// Returns a CUPTI structure whose first member is its size. All other members
// stay zero.
template <typename Params>
Params Sized(size_t bytes) {
  Params params = {};
  params.structSize = bytes;
  return params;
}

}  // namespace stepscope
