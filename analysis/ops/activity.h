// ActivityRef names one device activity (a kernel, copy or memset), whichever
// table of the Trace holds it.
#pragma once

#include <stepscope/trace.h>

#include <compare>
#include <cstdint>

namespace stepscope {

// A gap of at most 10 us before a queued activity is the device's own latency
// from one kernel to the next. Measured on public traces: shorter gaps occur
// throughout queued work; longer ones had another reason (another stream, a
// collective, a CUDA graph).
inline constexpr int64_t kQueuedLatencyNs = 10'000;

// The values index arrays that hold one entry per table.
enum class ActivityTable : uint8_t { kKernel, kCopy, kMemset };

// A row of Trace::kernels(), copies() or memsets(). Ordered by table, then row.
struct ActivityRef {
  ActivityTable table = ActivityTable::kKernel;
  RowId row = kNone;                                     // kNone: no activity
  auto operator<=>(const ActivityRef&) const = default;  // NOLINT(*nullptr)
};

}  // namespace stepscope
