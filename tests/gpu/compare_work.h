// Whether two profilers saw the same device work: kernels, copies and memsets
// by name, their counts exactly, and the median duration of names with many
// repeats as closely as the second profiler agrees with itself.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

namespace stepscope {

struct CompareOptions {
  int64_t least_repeats = 30;     // for a median to mean something
  double least_tolerance = 0.01;  // of a median
  int64_t tick_ns = 32;  // no clock of a device tells durations more finely
};

// One line for each difference between `ours` and the runs of another profiler;
// empty if there are none. Counts must be those of the first run. A median may
// lie outside the range of the runs' medians by least_tolerance of it, or by a
// tick. REQUIRES: at least one run.
std::vector<std::string> DifferencesInWork(const Trace& ours,
                                           const std::vector<Trace>& theirs,
                                           const CompareOptions& options = {});

// "Memcpy HtoD (Pinned -> Device)" of a copy, however its recorder named it.
std::string NameOfCopy(const Trace& trace, const Copy& copy);

}  // namespace stepscope
