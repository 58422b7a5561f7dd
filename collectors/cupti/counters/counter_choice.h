// CounterChoice: which of the wanted hardware counters a chip has and can count
// in one pass, as a configuration for the device; and what turns its counts
// into values. All of it happens on the host, and needs no device.
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

// What one interval of a device counted. Times are CUPTI's; shares are of the
// most that the device could do, 0 to 1, or -1 if it has no such counter.
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
  // `api` must outlive it. REQUIRES: it has counters().
  explicit CounterChoice(CuptiApi& api);
  ~CounterChoice() { DropHost(); }
  CounterChoice(const CounterChoice&) = delete;
  CounterChoice& operator=(const CounterChoice&) = delete;

  // `chip`: as CUPTI names it. `availability`: what the machine lets be
  // counted, as CUPTI wrote it; empty for all. Unavailable if the chip has none
  // of the counters; else errors of CUPTI's. May be called again.
  absl::Status Choose(const std::string& chip,
                      const std::vector<uint8_t>& availability);

  // Of the last successful Choose().
  const std::vector<uint8_t>& config() const { return config_; }
  std::vector<const char*>& metrics() { return metrics_; }
  // The counters that are left out, in words: "Tensor Cores, memory"; "" if
  // there are all.
  std::string missing() const;

  // Fills in the shares of the index-th sample in `data`, which was decoded
  // with this configuration.
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
  std::vector<float CounterSample::*> fields_;  // as metrics_
  std::vector<uint8_t> config_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
};

// The names of each counter that are tried, one after the other, the most
// important counter first.
std::vector<std::vector<const char*>> CounterNames();

// The functions of `api`. REQUIRES: it has them.
const CounterFunctions& CountersOf(const CuptiApi& api);
// OK, or an error that says what was tried.
absl::Status CheckCounters(const CuptiApi& api, const char* attempt,
                           CUptiResult code);

// CUPTI's structures say their size first; their second member stays null.
template <typename Params>
Params Sized(size_t bytes) {
  Params params = {};
  params.structSize = bytes;
  return params;
}

}  // namespace stepscope
