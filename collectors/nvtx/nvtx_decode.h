// From kNvtxSlot records to ranges and names.
//
// A pure function of its input: no state, and nothing is followed that a slot
// points to.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstdint>

#include "nvtx_names.h"

namespace stepscope {

// What was met that cannot be shown as it was.
struct NvtxDecodeResult {
  int64_t bad_records = 0;
  int64_t began_before = 0;  // ranges of which only the end was recorded
  int64_t unfinished = 0;    // ranges still open when the window closed
};

// Threads whose ranges do not nest as the rows of a thread must (started ones
// that end elsewhere or overlap) have these moved to rows of their own,
// numbered from here: above all numbers that a system gives to threads.
inline constexpr int64_t kNvtxFirstLaneTid = 1'000'000'000;

// Each range becomes a Range of RangeKind::kNvtx. Its detail says, where given,
// "domain=.., category=.., payload=..", and for a range that was moved
// "thread=..". A mark is a range of length 0; a range without a text is called
// after its category. Also names threads and streams.
NvtxDecodeResult DecodeNvtx(const SlotLog& log, const ClockMap& clock,
                            const NvtxNameTable& names, TraceBuilder& builder);

}  // namespace stepscope
