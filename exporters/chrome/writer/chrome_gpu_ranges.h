// GpuRange: a range or step of the host as it is drawn on the device. On each
// stream it extends from the start of the first to the end of the last activity
// that was launched inside it. Kineto calls this a gpu_user_annotation. Loader
// ranges have none, because activities launched inside them are not the
// loader's.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

namespace stepscope {

struct GpuRange {
  RowId range = kNone;  // either this
  RowId step = kNone;   // or this
  int32_t device = 0;
  int64_t stream = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Returns the ranges on all devices, sorted by start, longer ones first. Steps
// and ranges of collectives only with `all`: the PyTorch plugin would count a
// second mark of a collective as another one, of size 0, and double the steps.
std::vector<GpuRange> GpuRangesOf(const Trace& trace, bool all);

}  // namespace stepscope
