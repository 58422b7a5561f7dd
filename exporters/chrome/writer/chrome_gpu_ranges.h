// GpuRange: a range of the host as it is drawn on the device. On each stream it
// extends from the start of the first to the end of the last activity that the
// range's thread launched inside the range. Kineto calls this a
// gpu_user_annotation. Steps have none. Loader ranges have none, because
// activities launched inside them are not the loader's.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

namespace stepscope {

struct GpuRange {
  RowId range = kNone;
  int32_t device = 0;
  int64_t stream = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Returns the ranges on all devices, sorted by start, longer ones first. Ranges
// of collectives only with `collectives`: the PyTorch plugin would count a
// second mark of a collective as another one, of size 0.
std::vector<GpuRange> GpuRangesOf(const Trace& trace, bool collectives);

}  // namespace stepscope
