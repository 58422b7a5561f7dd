// Measures what the host does between the calls of a DeviceProgram, and how
// long the program's steps take. Used by record_program.cc to make a program.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "ops/op_traits.h"
#include "replay/gpu/device_program.h"
#include "steps/step_parts.h"
#include "steps/steps.h"

namespace stepscope {

// Sets framework_ns, zero_grad_ns and unused_ns of the host nodes; zero_grad,
// in_optimizer and step of the activities; and DeviceProgram::host.
void MeasureGaps(const Trace& trace, const OpTree& tree, const Steps& steps,
                 const StepParts& parts, DeviceProgram& program);

// Sets windows, steady, measured_ns, host_only_ns and the figures about
// batches. REQUIRES: FindCallWaits() has run.
void MeasureSteps(const Trace& trace, const Steps& steps,
                  DeviceProgram& program);

}  // namespace stepscope
