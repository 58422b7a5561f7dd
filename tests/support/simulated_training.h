// SimulatedTraining: a ResNet training loop as a program of
// program_simulator.h, with plausible names, times, modules, shapes, memory
// and, on request, a GPU and a second rank. For tests of viewers, where a Trace
// must look like one.
#pragma once

#include <stepscope/trace.h>

namespace stepscope {

struct SimulatedTrainingOptions {
  bool gpu = false;
  int steps = 3;
  int rank = 0;        // whose recording is wanted
  int world_size = 1;  // above 1 (GPUs only): an all-reduce per step
};

Trace SimulatedTraining(const SimulatedTrainingOptions& options);

}  // namespace stepscope
