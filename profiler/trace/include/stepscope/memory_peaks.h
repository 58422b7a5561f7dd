// MemoryPeaks(): for each step and device, the moment at which tensors used the
// most memory, and the operator whose allocation reached it.
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
  // When it was first reached; the step's begin if it was reached before.
  int64_t time_ns = 0;
  RowId allocation = kNone;  // that reached it; kNone: reached before the step
  // The innermost operator around that allocation which does more than
  // allocate ("aten::convolution", not its "aten::empty"); kNone: no operator.
  RowId op = kNone;
  // True if the events carry no totals: then `bytes` is a sum of their sizes
  // that starts at the smallest value for which it never becomes negative,
  // without the memory that was held during the whole window.
  bool is_counted = false;
};

// Sorted by step, device type and device. A device without allocation events
// has no peaks. In a step without events it has what it held at the end of the
// last step that had some. A pure function of the Trace.
std::vector<MemoryPeak> MemoryPeaks(const Trace& trace);

// The innermost operator around `op`, itself included, which does more than
// allocate; `op` if there is none. REQUIRES: op is a row of trace.ops() or
// kNone.
RowId AllocatingOp(const Trace& trace, RowId op);

}  // namespace stepscope
