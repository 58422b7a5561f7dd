// Reads the one trace that a command works on.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/logdir.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Names on stderr the files that were not taken from a folder or log directory.
void SaySkipped(const ResolvedRun& run);

// Reads the trace file `path`, or the only trace in a folder or log directory.
// Errors: those of ResolvePath() and ReadTrace(); InvalidArgument if there are
// several traces (the message names the first).
absl::StatusOr<Trace> ReadOneTrace(const std::string& path);

// Reads the trace of `rank` in `path`; if `rank` is negative, the first trace.
// Errors: those above; NotFound if no trace has that rank.
absl::StatusOr<Trace> ReadRank(const std::string& path, int32_t rank);

// Describes which ranks there are, for a user who asked for another one.
// Numbers below 0 stand for traces that do not name their rank.
std::string RanksThere(const std::vector<int32_t>& ranks);

}  // namespace stepscope
