// RunFigures: what viewers must show of a Trace, counted here in the plainest
// way and with none of the exporters' code.
#pragma once

#include <stepscope/trace.h>

#include <string>

namespace stepscope {

// A JSON object: steps (count, mean of the host windows, mean of the tiled
// spans, time waited for batches on the training thread), and by device
// kernels, copies by direction, busy and exposed communication times.
std::string RunFigures(const Trace& trace);

}  // namespace stepscope
