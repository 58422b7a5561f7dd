// The RecordFunction hooks, which run at the start and the end of every
// operator, autograd node and user scope, on its thread.
//
// Their only state is the calling thread's event buffer, so an end may come
// after the hooks were removed, or on another thread than its start.
#pragma once

#include <ATen/record_function.h>
#include <stepscope/collectors.h>

namespace stepscope {

// Returns the callback for these options, ready for at::addGlobalCallback().
at::RecordFunctionCallback MakeTorchCallback(const TorchOptions& options);

// Measures the time that recording (hooks and RecordFunction) adds to an
// operator, in nanoseconds. The measurement leaves no trace in the open window.
// -1 if it cannot be measured.
double MeasureOpCostNs(const TorchOptions& options);

}  // namespace stepscope
