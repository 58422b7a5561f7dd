// ReadTrace: reads a trace file into a Trace.
//
// It reads Chrome traces of stepscope and of torch.profiler, and XSpaces of
// stepscope and of XLA's GPU profilers, each plain, gzipped or compressed with
// zstd (where the build has it). The content decides the format, not the name.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <string>

namespace stepscope {

// Opens and reads `path` once. Times of the Trace are ns since the epoch, or
// since the file's own zero where it has no base time. A damaged file gives the
// rows that could be read, and losses() says what is missing. Errors: NotFound,
// PermissionDenied, InvalidArgument (not a trace; the message says what it
// looks like), DataLoss (nothing could be read; the message has file, byte
// offset and reason), ResourceExhausted (a compressed XSpace above 2 GiB). May
// be called from several threads at once; memory is bounded by the Trace, plus
// the file for a compressed XSpace.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace stepscope
