// Decodes the session's own slots: ranges, steps marked by a range's name, and
// the names of threads.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstdint>

namespace stepscope {

// Adds the rows. Step marks of torch.profiler count only if `builder` has no
// steps yet. Returns the number of invalid records of all sources. A thread
// that already has a name keeps it, because a collector that found a name knows
// how the program calls the thread.
int64_t DecodeRanges(const SlotLog& log, const ClockMap& clock,
                     TraceBuilder& builder);

}  // namespace stepscope
