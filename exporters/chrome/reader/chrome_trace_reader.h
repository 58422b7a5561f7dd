// Reads Chrome traces: torch.profiler's (Kineto's) since 2021, and our own in
// both flavours. Events are read one by one from blocks, so memory is bounded
// by the Trace that comes out.
//
// Damage loses only the events it hits: RepairJson() repairs what it can, and
// the rest is counted. losses() may contain: truncated-file, damaged-file,
// wrong-checksum, damaged-events, repaired-events, negative-durations,
// unreadable-times, missing-durations, damaged-header, duplicate-steps,
// unpaired-events, unread-device-rows, merged-ranks, unknown-events.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/trace.h>

#include <string>

#include "io/bytes_reader.h"
#include "json/json_events_reader.h"

namespace stepscope {

// Reads the file at `path`, which `bytes` has opened. Errors: InvalidArgument
// (JSON, but not a Chrome trace), DataLoss (no event could be read; the message
// has file, offset and reason).
absl::StatusOr<Trace> ReadChromeTrace(const std::string& path,
                                      BytesReader* bytes);

// Returns the error for a file in which no array of events was found.
absl::Status NoEventsError(const std::string& path, const BytesReader& bytes,
                           const JsonEventsReader& events);

}  // namespace stepscope
