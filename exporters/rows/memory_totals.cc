#include "rows/memory_totals.h"

#include <algorithm>

namespace stepscope {

// The first pass finds how far the sum of sizes falls below zero. That many
// bytes must have been allocated before the recording began.
MemoryTotals::MemoryTotals(const Trace& trace) : trace_(trace) {
  std::map<Allocator, int64_t> sums;
  for (const Allocation& event : trace.allocations()) {
    const Allocator allocator = {event.device_type, event.device};
    int64_t& sum = sums[allocator];
    sum = event.total_allocated_bytes >= 0 ? event.total_allocated_bytes
                                           : sum + event.bytes;
    int64_t& begin = begin_bytes_[allocator];
    begin = std::max(begin, -sum);
  }
}

MemoryTotals::Totals MemoryTotals::After(RowId row) {
  const Allocation& event = trace_.allocations()[row];
  const Allocator allocator = {event.device_type, event.device};
  // Row 0 begins a new walk over the rows.
  if (row == 0) now_.clear();
  const auto [it, added] = now_.try_emplace(allocator);
  Totals& now = it->second;
  if (added) now.allocated_bytes = begin_bytes_[allocator];
  now.counted = event.total_allocated_bytes < 0;
  now.allocated_bytes = now.counted ? now.allocated_bytes + event.bytes
                                    : event.total_allocated_bytes;
  now.reserved_bytes = event.total_reserved_bytes;
  now.peak_bytes = std::max(now.peak_bytes, now.allocated_bytes);
  return now;
}

}  // namespace stepscope
