// The workloads that the recorders record. Each returns the CPU time of its
// threads per event in ns. CPU time, because the threads share cores with each
// other and with other programs.
#pragma once

namespace stepscope::bench {

// Runs at::add on 4 x 8 floats `ops` times on each of `threads` threads.
double AddOps(int threads, int ops);

// Runs backward passes over a chain of negations. Each link has three recorded
// events: the engine's range, the node, and its operator.
double BackwardPasses(int passes);

// Runs forward and backward passes of a residual block like ResNet-18's (two
// convolutions and two batch norms, each followed by a ReLU) on 1 x 8 x 4 x 4
// floats.
double ResidualBlocks(int passes);

// Opens user scopes, each with a new name.
double UserScopes(int scopes);

}  // namespace stepscope::bench
