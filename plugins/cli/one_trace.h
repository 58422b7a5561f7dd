// Reading the one trace that a command works on.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Reads the trace file `path`, or the only trace in a folder or log directory.
// Errors: those of ResolvePath() and ReadTrace(); InvalidArgument if there are
// several traces (the message names the first).
absl::StatusOr<Trace> ReadOneTrace(const std::string& path);

// Reads the trace of `rank` that `path` stands for, or, where it is negative,
// the first one. Errors: those above; NotFound if no trace is of that rank.
absl::StatusOr<Trace> ReadRank(const std::string& path, int32_t rank);

// Which ranks there are, for somebody who asked for another one. Those below 0
// are of traces that do not name their rank.
std::string RanksThere(const std::vector<int32_t>& ranks);

}  // namespace stepscope
