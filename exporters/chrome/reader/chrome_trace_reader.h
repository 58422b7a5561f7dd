// Reads Chrome traces: torch.profiler's (Kineto's) of any age, and our own in
// both flavours, plain or gzipped. Events are read one by one from blocks, so
// memory is bounded by the Trace that comes out.
//
// Damage costs the events it is in: what can be mended is (RepairJson), what
// cannot is counted. losses() names: truncated-file, damaged-events,
// repaired-events, negative-durations, unreadable-times, damaged-header,
// duplicate-steps, unpaired-events, unknown-events.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <string>

#include "io/bytes_reader.h"
#include "json/json_events_reader.h"

namespace stepscope {

// Errors: InvalidArgument (JSON, but no Chrome trace), DataLoss (no event could
// be read: file, offset, reason).
absl::StatusOr<Trace> ReadChromeTrace(const std::string& path,
                                      BytesReader* bytes);

// What is wrong with a file in which no array of events was found.
absl::Status NoEventsError(const std::string& path, const BytesReader& bytes,
                           const JsonEventsReader& events);

}  // namespace stepscope
