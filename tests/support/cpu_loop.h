// A CPU training loop as a struct, for tests that vary one number. It becomes a
// program for program_simulator.h without jitter.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

namespace stepscope {

struct LoopOp {
  std::string name = "aten::mkldnn_convolution";
  double ms = 1;  // on one thread
  bool parallel = true;
  double dispatch_us = 10;  // of aten::wrapper around the op
  double gap_us = 5;        // code before the wrapper
  bool zero_grad = false;   // has no wrapper; its dispatch counts as code
};

struct Loop {
  int steps = 4;        // recorded
  int warmup = 4;       // before the recorded steps
  double batch_ms = 0;  // CPU time per batch; 0: no loader
  std::vector<LoopOp> ops;
  int threads = 1;
  int workers = 0;
  int cores = 2;
  double serial = 0.05;  // serial share of a parallel op
};

// Returns `count` ops, alternately `ms` of parallel work and a short serial op.
std::vector<LoopOp> Ops(int count, double ms);

struct LoopRun {
  Trace trace;
  double mean_step_ms = 0;
};
LoopRun Simulate(const Loop& loop);

}  // namespace stepscope
