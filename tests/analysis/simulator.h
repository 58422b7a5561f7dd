// A CPU training loop and a machine to run it on: the truth that replay is
// held against. Time goes by in quanta of 10 us; threads sit on cores and
// share them; it has no code in common with analysis/replay.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

struct LoopOp {
  std::string name = "aten::mkldnn_convolution";
  double ms = 1;  // on one thread
  bool parallel = true;
  double dispatch_us = 10;  // inside the op around its kernel
  double gap_us = 5;        // code before it
  bool zero_grad = false;
};

struct Loop {
  int steps = 4;        // recorded
  int warmup = 4;       // before the recording
  double batch_ms = 0;  // CPU time of making one batch; 0: no loader
  std::vector<LoopOp> ops;
  int threads = 1;
  int workers = 0;
  int cores = 2;
  double efficiency = 0.85;  // of doubling the threads
};

// `count` ops that alternate between `ms` of parallel work and a small serial
// one.
std::vector<LoopOp> Ops(int count, double ms);

struct LoopRun {
  Trace trace;
  double mean_step_ms = 0;
};
LoopRun Simulate(const Loop& loop);

}  // namespace stepscope
