// The host's own time, read directly from the recording. A replay without any
// device time must give the same. Replay decides for each call what it waits
// for; this code only looks for long calls of the chain while the device was
// busy. If the two disagree, replay mistakes a wait for the host's own time or
// the other way round.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "replay/gpu/device_program.h"
#include "steps/steps.h"

namespace stepscope {

// Returns, for each step, the time in ns from the end of the previous step's
// host window to the end of its own in which no call waited for the device.
std::vector<int64_t> HostOnlyNs(const Trace& trace, const Steps& steps,
                                const DeviceProgram& program);

}  // namespace stepscope
