// Rung: one change of the ladder, and what may have led to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "resnet/options.h"

namespace ladder {

struct Rung {
  std::string name;
  std::string flags;  // of resnet, added to those of the rungs below
  // Findings whose fix this is. The report of the rung below has one of them,
  // or nobody asked for this rung.
  std::vector<std::string> findings;
};

// From the baseline up. The first one changes nothing: its flags are the
// baseline's. Source: on a GPU, the published case study, then what the guides
// add; on a CPU, those of its rungs that a CPU has.
const std::vector<Rung>& RungsFor(resnet::DeviceKind device);

}  // namespace ladder
