// Compares the device work that two profilers recorded: kernels, copies and
// memsets by name. Counts must be equal. For names with many repeats, the
// medians must agree as closely as the second profiler's own runs do.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

namespace stepscope {

struct CompareOptions {
  int64_t least_repeats = 30;     // needed to compare a median
  double least_tolerance = 0.01;  // of a median
  int64_t tick_ns = 32;           // resolution of device clocks
};

// Returns one line for each difference between `ours` and the runs of another
// profiler; empty if there is none. Counts must equal those of the first run. A
// median may lie outside the range of the runs' medians by the share
// least_tolerance of it, or by a tick. REQUIRES: at least one run.
std::vector<std::string> DifferencesInWork(const Trace& ours,
                                           const std::vector<Trace>& theirs,
                                           const CompareOptions& options = {});

// Returns a copy's name in the form "Memcpy HtoD (Pinned -> Device)", whatever
// its recorder called it.
std::string NameOfCopy(const Trace& trace, const Copy& copy);

}  // namespace stepscope
