// GpuRanges: the ranges of the host as the device saw them. A range reaches, on
// each stream, from the begin of the first to the end of the last work that its
// own thread launched while it was open; Kineto calls that a
// gpu_user_annotation. Steps and collectives have none: the PyTorch plugin
// would count them twice.
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

// By begin, longer first.
std::vector<GpuRange> GpuRangesOf(const Trace& trace);

}  // namespace stepscope
