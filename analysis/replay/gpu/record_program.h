// How a DeviceProgram is made of a recording.
#pragma once

#include <stepscope/trace.h>

#include "ops/op_traits.h"
#include "replay/gpu/device_program.h"
#include "steps/step_parts.h"
#include "steps/steps.h"

namespace stepscope {

// Of `stretch` and of what was launched before it and may still run.
// REQUIRES: trace.has_device_work(), there are steps.
DeviceProgram MakeDeviceProgram(const Trace& trace, const OpTree& tree,
                                const ReplayWindow& window,
                                const StepParts& parts);

}  // namespace stepscope
