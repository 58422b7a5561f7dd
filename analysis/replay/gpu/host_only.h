// The host's own time, read from the recording itself: what replay of a program
// without any device time must give. Replay says what single calls wait for;
// here it only counts that a call of the chain was long while the device was
// busy. Where the two disagree, replay takes a wait for the host's own time, or
// the other way round.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "replay/gpu/device_program.h"
#include "steps/steps.h"

namespace stepscope {

// Returns, for each step, the time of its host window in which no call waited
// for the device, in ns.
std::vector<int64_t> HostOnlyNs(const Trace& trace, const Steps& steps,
                                const DeviceProgram& program);

}  // namespace stepscope
