// DecodeNvtx(): turns kNvtxSlot records into ranges and names. A pure function
// of its input that dereferences no pointer of a slot.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/slot_walk.h>
#include <stepscope/trace_builder.h>

#include <cstdint>

#include "nvtx_names.h"

namespace stepscope {

// Events that cannot be shown as they happened.
struct NvtxDecodeResult {
  int64_t bad_records = 0;
  int64_t began_before = 0;  // ranges whose start was not recorded
  int64_t unfinished = 0;    // ranges still open when the window closed
};

// The ranges of a Trace's thread must nest. Started ranges that overlap or end
// on another thread are moved to extra threads. The numbers of those start
// here, above all thread ids of a system.
inline constexpr int64_t kNvtxFirstLaneTid = 1'000'000'000;

// Turns each range into a Range of RangeKind::kNvtx. Its detail is "domain=..,
// category=.., payload=..", with the parts that the program gave, and
// "thread=.." for a range that was moved. A mark becomes a range of length 0. A
// range without a text gets its category's name. Also names threads and
// streams.
NvtxDecodeResult DecodeNvtx(const SlotLog& log, const ClockMap& clock,
                            const NvtxNameTable& names, TraceBuilder& builder);

}  // namespace stepscope
