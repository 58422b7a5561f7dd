// The head of a Chrome trace: Kineto's keys and the object "stepscope" that
// makes a trace read back equal the live one (docs/chrome_trace.md).
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>

#include "chrome/writer/chrome_flavour.h"
#include "rows/event_order.h"

namespace stepscope {

// The moment that ts 0 stands for: a midnight that all ranks of a job agree on,
// near enough for microseconds in a double to keep their nanoseconds.
int64_t ChromeBaseTime(const Trace& trace, const TimeSpan& span);

// Appends everything up to and with `"traceEvents": [`.
void WriteChromeHeader(const Trace& trace, ChromeFlavour flavour,
                       int64_t base_ns, std::string& out);

}  // namespace stepscope
