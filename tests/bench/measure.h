// Tools for the benches of files and of the analysis: timing, memory, and
// traces to measure on.
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

// Memory that some work keeps, and its peak during the work, both above the
// memory before.
struct Memory {
  double kept_bytes = 0;
  double peak_bytes = 0;
};
// Measures memory before and after the work. Each Begin() resets the peak.
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

// Returns the number of rows in all event tables.
int64_t EventsOf(const Trace& trace);

// Returns a training run of about `events` rows with nested ops, launches and
// kernels, without steps.
Trace MadeUp(int64_t events);
// Repeats the steps of a recorded loop until there are `events` rows, as if the
// loop had been recorded for longer.
Trace Lengthened(const Trace& trace, int64_t events);

// Adds a row of `seconds` per unit of work. The speed must be at least `bound`
// units per second.
void AddSpeed(const std::string& name, const std::string& unit, double amount,
              const std::vector<double>& seconds, double bound,
              Results& results);

}  // namespace stepscope::bench
