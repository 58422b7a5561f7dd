// What the benches of files and of the analysis measure with: seconds, memory,
// and traces to measure on.
#pragma once

#include <stepscope/trace.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "results.h"

namespace stepscope::bench {

inline constexpr double kMb = 1e6;

template <typename Work>
double Seconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// What is held after some work, and the most that was held meanwhile, above
// before.
struct Memory {
  double kept_bytes = 0;
  double peak_bytes = 0;
};
// Before and after the work; the peak starts anew at each Begin.
class MemoryMeter {
 public:
  MemoryMeter();
  Memory Read() const;

 private:
  double before_ = 0;
};
template <typename Work>
Memory MemoryOf(Work work) {
  const MemoryMeter meter;
  work();
  return meter.Read();
}

[[noreturn]] void Fail(const std::string& what);
Trace ReadOrFail(const std::string& path);
// "/a/b/owlv2_h100.json.gz" -> "owlv2_h100"
std::string ShortName(const std::string& path);

// All rows of all tables of events.
int64_t EventsOf(const Trace& trace);

// A training run of about `events` rows: ops that nest, launches, kernels; no
// steps.
Trace MadeUp(int64_t events);
// The steps of a recorded loop, one recording after the other until there are
// `events` rows: the same loop, recorded for longer.
Trace Lengthened(const Trace& trace, int64_t events);

// A row of `seconds` per unit of work, held against at least `bound` units per
// second.
void AddSpeed(const std::string& name, const std::string& unit, double amount,
              const std::vector<double>& seconds, double bound,
              Results& results);

}  // namespace stepscope::bench
