// Writes the header of a Chrome trace: Kineto's keys and our object "stepscope"
// (docs/chrome_trace.md).
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>

#include "chrome/writer/chrome_flavour.h"
#include "rows/event_order.h"

namespace stepscope {

// Returns the time of ts 0, in ns since the epoch. It is a midnight, so that
// all ranks of a job agree on it. It is close enough to the events that
// microseconds in a double still resolve nanoseconds.
int64_t ChromeBaseTime(const Trace& trace, const TimeSpan& span);

// Appends everything up to and including `"traceEvents": [`.
void WriteChromeHeader(const Trace& trace, ChromeFlavour flavour,
                       int64_t base_ns, std::string& out);

}  // namespace stepscope
