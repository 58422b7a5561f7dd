// What the recorders are made to record. Each returns the CPU time its threads
// took per event, in nanoseconds: CPU time, because the threads share cores
// with each other and with whatever else the machine does.
#pragma once

namespace stepscope::bench {

// at::add on 4 x 8 floats, `ops` times on each of `threads` threads.
double AddOps(int threads, int ops);

// A backward pass over a chain of negations; per recorded event, of which each
// link has three (the engine's range, the node, its operator).
double BackwardPasses(int passes);

// The forward and backward pass of a residual block as ResNet-18 has them (two
// convolutions, two batch norms, a ReLU after each), on 1 x 8 x 4 x 4 floats;
// per recorded event.
double ResidualBlocks(int passes);

// User scopes, each with a name not seen before.
double UserScopes(int scopes);

}  // namespace stepscope::bench
