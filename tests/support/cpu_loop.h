// A CPU training loop as a struct, for tests that vary one of its figures: it
// becomes a program of program_simulator.h without jitter.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

namespace stepscope {

struct LoopOp {
  std::string name = "aten::mkldnn_convolution";
  double ms = 1;  // on one thread
  bool parallel = true;
  double dispatch_us = 10;  // of aten::wrapper, the op around it
  double gap_us = 5;        // code before it
  bool zero_grad = false;   // has no wrapper; its dispatch is code as well
};

struct Loop {
  int steps = 4;        // recorded
  int warmup = 4;       // before the recording
  double batch_ms = 0;  // CPU time of making one batch; 0: no loader
  std::vector<LoopOp> ops;
  int threads = 1;
  int workers = 0;
  int cores = 2;
  double serial = 0.05;  // of an op that the threads share
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
