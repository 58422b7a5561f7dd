// Decodes the session's own slots: ranges, steps that a range's name marks, and
// the names of threads.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstdint>

namespace stepscope {

// Adds the rows, and returns the number of invalid records of any source. A
// thread that already has a name keeps it: a collector that found one knows
// what the program calls the thread.
int64_t DecodeRanges(const SlotLog& log, const ClockMap& clock,
                     TraceBuilder& builder);

}  // namespace stepscope
