// MemoryPeaks(): for each step and device, the moment at which tensors used the
// most memory, and the operator whose allocation reached that peak.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

namespace stepscope {

struct MemoryPeak {
  RowId step = kNone;       // in steps(); kNone where the Trace has no steps
  int32_t device_type = 0;  // the numbers of Allocation::device_type
  int32_t device = -1;
  int64_t bytes = 0;
  int64_t reserved_bytes = -1;  // at that moment; -1 if unknown
  // When the peak was first reached. The step's start if it was reached before.
  int64_t time_ns = 0;
  RowId allocation = kNone;  // that reached the peak; kNone: before the step
  // The innermost operator around that allocation that does more than allocate
  // ("aten::convolution", not its inner "aten::empty"); kNone if there is no op
  // around the allocation.
  RowId op = kNone;
  // True if the events have no totals. `bytes` is then a sum of their sizes
  // that starts at the smallest value for which it never becomes negative. It
  // lacks the memory that was held during the whole window.
  bool is_counted = false;
};

// Returns the peaks sorted by step, device type and device. A device without
// allocation events has no peaks. A step without events gets the level at the
// end of the last step that had some. Pure.
std::vector<MemoryPeak> MemoryPeaks(const Trace& trace);

// Returns the innermost op that does more than allocate, `op` or one of its
// callers; `op` itself if there is none. REQUIRES: op is a row of trace.ops()
// or kNone.
RowId AllocatingOp(const Trace& trace, RowId op);

}  // namespace stepscope
