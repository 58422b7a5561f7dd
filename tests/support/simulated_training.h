// SimulatedTraining: a Trace as a ResNet training loop would leave it, with
// plausible names, times, modules, shapes, memory and, on request, a GPU and a
// second rank. For tests of viewers, where a Trace must look like one.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>

namespace stepscope {

struct SimulatedTrainingOptions {
  bool gpu = false;
  int steps = 3;
  int blocks = 4;  // residual blocks
  int32_t rank = 0;
  int32_t world_size = 1;  // above 1: an all-reduce per step
  int64_t loader_ns = 8'000'000;
  int64_t begin_ns = 1'763'700'000'123'456'789;
};

Trace SimulatedTraining(const SimulatedTrainingOptions& options);

}  // namespace stepscope
