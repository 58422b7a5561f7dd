// FakeCounters: CUPTI's sampling of hardware counters, without a device, as far
// as stepscope uses it. It refuses what the real one refuses: structures of a
// wrong size, calls in a wrong order, names that the chip does not know, more
// counters than fit into one pass. It counts at the interval it was given, on
// FakeCupti's clock, the shares that a test sets.
//
// Its habits:
// - GA100 and Turing count in clocks of the device, and refuse a time interval;
// - a full buffer ends the counting until it is started again, and the call
//   that decodes says CUPTI_ERROR_OUT_OF_MEMORY;
// - giving the counters back detaches CUPTI from the process (a note in XLA's
//   sources; seen in no document).
//
// There is one, because CUPTI's functions have no object. Any thread may call
// it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api/counter_functions.h"

namespace stepscope {

class FakeCupti;

class FakeCounters {
 public:
  // What a test sets; Reset() gives back the defaults.
  struct Settings {
    std::string chip = "gh100";
    std::set<std::string> metrics = {
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed"};
    size_t most_in_one_pass = 8;
    bool has_timer = true;          // takes a time interval
    bool is_supported = true;       // false: MIG, a virtual GPU
    size_t most_waiting = 100'000;  // samples that the buffer holds
    int64_t clock_offset_ns = 0;  // its times are later than CUPTI's by so much
    // In percent, by the name of the metric.
    std::map<std::string, double> values;
    // The code that a call fails with, by its name ("Enable").
    std::map<std::string, CUptiResult> failures;
  };

  static FakeCounters& Get();
  // The functions to be called, as dlsym() finds them in the library.
  static const CounterFunctions& Functions();

  // All settings to their defaults, nothing claimed; `cupti` is whose clock it
  // has, and what giving back detaches. Must outlive all use; null: none.
  void Reset(FakeCupti* cupti);
  template <typename Change>
  void Set(Change change) {
    const std::lock_guard lock(mutex_);
    change(settings_);
  }

  int claimed() const;  // devices whose counters are claimed
  int hosts() const;    // host objects that exist
  bool is_on() const;   // some device counts
  int64_t interval_ns() const { return interval_ns_; }
  std::vector<std::string> calls() const;  // names, in order

 private:
  friend struct FakeCounterCalls;
  struct Sample {
    uint64_t begin = 0;
    uint64_t end = 0;
    double values[8] = {};
  };
  struct Host {
    std::vector<std::string> metrics;
  };
  struct Sampling {
    bool is_configured = false;
    bool is_on = false;
    bool is_full = false;
    uint64_t counted_to = 0;
    std::vector<Sample> waiting;
  };
  CUptiResult Enter(const char* name);
  void Count(Sampling& sampling);
  uint64_t Now() const;

  mutable std::mutex mutex_;
  Settings settings_;
  FakeCupti* cupti_ = nullptr;
  std::vector<std::string> calls_;
  std::set<Host*> hosts_;
  std::map<size_t, Sampling*> samplings_;  // by device
  std::vector<std::string> configured_;    // metrics of the last config image
  int64_t interval_ns_ = 0;
};

}  // namespace stepscope
