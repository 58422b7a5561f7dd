// ReadOneTrace: for commands that work on one trace.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <string>

namespace stepscope {

// Reads the trace file `path`, or the only trace in a folder or log directory.
// Errors: those of ResolvePath() and ReadTrace(); InvalidArgument (names some)
// where there are several.
absl::StatusOr<Trace> ReadOneTrace(const std::string& path);

}  // namespace stepscope
