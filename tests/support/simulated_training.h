// SimulatedTraining: a ResNet training loop as a program for
// program_simulator.h with plausible names, times, modules, shapes and memory,
// and optionally a GPU and a second rank. For tests of viewers, which need a
// realistic Trace.
#pragma once

#include <stepscope/trace.h>

namespace stepscope {

struct SimulatedTrainingOptions {
  bool gpu = false;
  int steps = 3;
  int rank = 0;        // rank whose recording is returned
  int world_size = 1;  // above 1 (GPU only): one all-reduce per step
};

Trace SimulatedTraining(const SimulatedTrainingOptions& options);

}  // namespace stepscope
