// The ranges of the host, drawn on the device. On each stream a range extends
// from the start of the first to the end of the last activity that its thread
// launched while it was open; Kineto calls that a gpu_user_annotation. Steps
// and collectives have none, because the PyTorch plugin would count them twice.
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

// Sorted by begin, longer ranges first.
std::vector<GpuRange> GpuRangesOf(const Trace& trace);

}  // namespace stepscope
