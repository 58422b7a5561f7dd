// FakeCounters: the part of CUPTI's hardware counter sampling that stepscope
// uses, without a device. It refuses what the real one refuses: structures of a
// wrong size, calls in a wrong order, names that the chip does not know, and
// more counters than fit into one pass. It counts at the given interval on
// FakeCupti's clock and returns the shares that a test sets.
//
// Like the real one:
// - GA100 and Turing count in device clocks and refuse a time interval;
// - a full buffer stops the counting until it is started again, and the call
//   that decodes returns CUPTI_ERROR_OUT_OF_MEMORY;
// - releasing the counters detaches CUPTI from the process (according to a note
//   in XLA's sources; no document says so).
//
// There is only one, because CUPTI's functions take no object. Any thread may
// call it.
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
  // Settings by a test. Reset() restores the defaults.
  struct Settings {
    std::string chip = "gh100";
    std::set<std::string> metrics = {
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed"};
    size_t most_in_one_pass = 8;
    bool has_timer = true;          // accepts a time interval
    bool is_supported = true;       // false: MIG or a virtual GPU
    size_t most_waiting = 100'000;  // capacity of the buffer in samples
    int64_t clock_offset_ns = 0;    // its times are later than CUPTI's by this
    // Percentages by the name of the metric.
    std::map<std::string, double> values;
    // Error codes of calls by name ("Enable").
    std::map<std::string, CUptiResult> failures;
  };

  static FakeCounters& Get();
  // Returns the functions, as dlsym() would find them in the library.
  static const CounterFunctions& Functions();

  // Resets all settings and releases everything. The fake uses the clock of
  // `cupti`, and releasing counters detaches `cupti`, which must outlive all
  // use; null: none.
  void Reset(FakeCupti* cupti);
  template <typename Change>
  void Set(Change change) {
    const std::lock_guard lock(mutex_);
    change(settings_);
  }

  int claimed() const;  // devices whose counters are in use
  int hosts() const;    // number of existing host objects
  bool is_on() const;   // true if some device is counting
  int64_t interval_ns() const { return interval_ns_; }
  std::vector<std::string> calls() const;  // names in the order of calling

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
  std::vector<std::string> configured_;    // metrics in the last config image
  int64_t interval_ns_ = 0;
};

}  // namespace stepscope
