// Simulate(): one run of an edited DeviceProgram.
#pragma once

#include <vector>

#include "replay/gpu/device_edit.h"
#include "replay/gpu/device_program.h"

namespace stepscope {

struct DeviceRun {
  std::vector<double> step_ns;  // by step window: the length of the tiled span
                                // (steps.h)
  double mean_ns = 0;           // of the steady steps
};

// REQUIRES: `edited` was made for `program`; program.steady is not empty.
// Takes time linear in nodes and activities.
DeviceRun Simulate(const DeviceProgram& program, const EditedProgram& edited);

}  // namespace stepscope
