// From the session's own slots to rows: ranges, steps marked by a range's name,
// and the names of threads.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstdint>

namespace stepscope {

// Adds the rows; gives the number of records, whoever wrote them, that made no
// sense. A thread that has a name by then keeps it: a collector that found one
// knows what the program called it.
int64_t DecodeRanges(const SlotLog& log, const ClockMap& clock,
                     TraceBuilder& builder);

}  // namespace stepscope
