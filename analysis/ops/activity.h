// ActivityRef: one device activity, whichever table of the Trace holds it.
#pragma once

#include <stepscope/trace.h>

#include <compare>
#include <cstdint>

namespace stepscope {

enum class ActivityTable : uint8_t { kKernel, kCopy, kMemset };

// One device activity: a row of kernels(), copies() or memsets().
struct ActivityRef {
  ActivityTable table = ActivityTable::kKernel;
  RowId row = kNone;
  auto operator<=>(const ActivityRef&) const = default;
};

}  // namespace stepscope
