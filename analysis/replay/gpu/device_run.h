// One simulation of an edited DeviceProgram.
#pragma once

#include <vector>

#include "replay/gpu/device_edit.h"
#include "replay/gpu/device_program.h"

namespace stepscope {

struct DeviceRun {
  std::vector<double> step_ns;  // tiled, per window
  double mean_ns = 0;           // of the steady ones
};

DeviceRun Simulate(const DeviceProgram& program, const EditedProgram& edited);

}  // namespace stepscope
