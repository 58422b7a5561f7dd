// WithCuts() applies Edit::cuts to the recorded steps of a CPU-only run.
#pragma once

#include <vector>

#include "edit/edit.h"
#include "replay/cpu/graph.h"

namespace stepscope {

// Returns program.steps with the work inside the cuts shortened. Where cuts
// overlap, the one that shortens most counts. Empty if `cuts` is empty.
std::vector<std::vector<Work>> WithCuts(const CpuProgram& program,
                                        const std::vector<HostCut>& cuts);

}  // namespace stepscope
