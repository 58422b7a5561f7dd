// MemoryPeaks(): the most memory that tensors had in use at one moment of each
// step, on each device, and the operator that took the last of it. Pure.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

namespace stepscope {

struct MemoryPeak {
  RowId step = kNone;       // in steps(); kNone where the Trace has no steps
  int32_t device_type = 0;  // as Allocation numbers them
  int32_t device = -1;
  int64_t bytes = 0;
  int64_t reserved_bytes = -1;  // at that moment; -1 if unknown
  int64_t time_ns = 0;  // the first moment of it; the step's beginning if it
                        // was held from before
  RowId allocation = kNone;  // that reached it; kNone: held from before
  // The innermost operator around that allocation which does more than
  // allocate ("aten::convolution", not its "aten::empty"); kNone: no operator.
  RowId op = kNone;
  // The events told no totals: their sizes were added up, from the least that
  // leaves no total negative. Memory held all through the window is not in it.
  bool is_counted = false;
};

// In the order of steps, within one by device type and device. A device that no
// allocation() names has no peaks; one without events in a step has what it
// held from before, once an event has told it.
std::vector<MemoryPeak> MemoryPeaks(const Trace& trace);

}  // namespace stepscope
