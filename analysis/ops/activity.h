// ActivityRef names one device activity (a kernel, copy or memset), whichever
// table of the Trace holds it.
#pragma once

#include <stepscope/trace.h>

#include <compare>
#include <cstdint>

namespace stepscope {

// The values index arrays that hold one entry per table.
enum class ActivityTable : uint8_t { kKernel, kCopy, kMemset };

// A row of Trace::kernels(), copies() or memsets(). Ordered by table, then row.
struct ActivityRef {
  ActivityTable table = ActivityTable::kKernel;
  RowId row = kNone;  // kNone: no activity
  auto operator<=>(const ActivityRef&) const = default;
};

}  // namespace stepscope
