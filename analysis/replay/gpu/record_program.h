// MakeDeviceProgram(): makes a DeviceProgram from a recording.
#pragma once

#include <stepscope/trace.h>

#include "ops/op_traits.h"
#include "replay/gpu/device_program.h"
#include "steps/step_parts.h"
#include "steps/steps.h"
#include "timeline/recorder_cost.h"

namespace stepscope {

// Includes the activities of the steps in `window`, and earlier ones that may
// still run when they begin. REQUIRES: trace.has_device_work(), and the window
// has steps.
DeviceProgram MakeDeviceProgram(const Trace& trace, const OpTree& tree,
                                const ReplayWindow& window,
                                const StepParts& parts,
                                const RecorderCost& cost);

}  // namespace stepscope
