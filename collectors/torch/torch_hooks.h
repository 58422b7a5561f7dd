// The RecordFunction hooks: what runs at the start and the end of every
// operator, autograd node and user scope, on whatever thread it runs.
//
// They keep no state but the calling thread's event buffer, so an end may come
// after the hooks were removed, or on another thread than its start.
#pragma once

#include <ATen/record_function.h>
#include <stepscope/collectors.h>

namespace stepscope {

// The callback for these options, ready for at::addGlobalCallback().
at::RecordFunctionCallback MakeTorchCallback(const TorchOptions& options);

// Nanoseconds one recorded operator costs, hooks and RecordFunction together,
// measured here and now; nothing of it gets into the open window. -1 if it
// cannot be measured.
double MeasureOpCostNs(const TorchOptions& options);

}  // namespace stepscope
