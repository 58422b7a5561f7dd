// Reads XSpaces (*.xplane.pb): our own, and those of XLA's and TensorFlow's GPU
// profilers. Plain files are mapped, so memory is bounded by the Trace that
// comes out.
//
// An XSpace has less than a Trace: input shapes, call stacks, collectives,
// waits of the host and driver memory are missing. losses() may contain:
// truncated-file, damaged-file, wrong-checksum, damaged-events,
// negative-durations, unreadable-times, unknown-events (planes of other
// devices), long-names, too-many-planes (a hostile file), format-limits (ours:
// what it could not hold).
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <string>

#include "io/bytes_reader.h"

namespace stepscope {

// Reads the file at `path`, which `bytes` has opened. REQUIRES: nothing but
// Head() was called on `bytes`. Errors: ResourceExhausted (a compressed file
// above 2 GiB), DataLoss (no event could be read).
absl::StatusOr<Trace> ReadXSpace(const std::string& path, BytesReader* bytes);

}  // namespace stepscope
