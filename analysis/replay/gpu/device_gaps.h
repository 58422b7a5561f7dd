// What the host does between the calls of a DeviceProgram, and how long its
// steps take.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "ops/op_traits.h"
#include "replay/gpu/device_program.h"
#include "steps/step_parts.h"
#include "steps/steps.h"

namespace stepscope {

// Fills framework_ns, zero_grad_ns and unused_ns of the nodes; zero_grad,
// in_optimizer and step of the works.
void MeasureGaps(const Trace& trace, const OpTree& tree, const Steps& steps,
                 const StepParts& parts, DeviceProgram& program);

// Fills windows, steady, measured_ns, host_only_ns and deepest_queue.
void MeasureSteps(const Trace& trace, const Steps& steps,
                  DeviceProgram& program);

}  // namespace stepscope
