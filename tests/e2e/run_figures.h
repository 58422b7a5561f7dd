// RunFigures: the numbers that viewers must show for a Trace, counted in the
// simplest way and without the exporters' code.
#pragma once

#include <stepscope/trace.h>

#include <string>

namespace stepscope {

// Returns a JSON object with the steps (count, mean of the host windows, mean
// of the tiled spans, time that the training thread waits for batches) and, by
// device, kernels, copies by direction, busy time and exposed communication
// time.
std::string RunFigures(const Trace& trace);

}  // namespace stepscope
