// ReadTrace: a file into a Trace. The format is told by content, not by name.
//
// Chrome traces of stepscope and of torch.profiler are read, and XSpaces of
// stepscope and of XLA's GPU profilers; plain, gzipped or zstd-compressed. A
// damaged file gives what could be read, with losses() saying what is missing.
// Errors: NotFound, InvalidArgument (not a trace: says what it looks like),
// DataLoss (nothing could be read: file, byte offset, reason).
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <string>

namespace stepscope {

absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace stepscope
