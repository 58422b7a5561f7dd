// RecorderCost: how long the recorder itself takes per event, from which the
// step time without it is estimated.
#pragma once

#include <stepscope/trace.h>

#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// In ns; 0 where it is not known.
struct RecorderCost {
  double op_ns = 0;        // per operator
  double call_ns = 0;      // per call of the CUDA runtime or driver
  double frame_ns = 0;     // per Python frame
  bool estimated = false;  // from the recording's own gaps, not measured
};

// A recording of stepscope states the cost of an operator, measured on its
// machine in the best of cases; what it costs in a program with a GPU, where
// CUPTI takes part, is the difference to the steps before the window, if they
// were timed. One of torch.profiler states nothing, so the cost is estimated:
// the callbacks run between operators, and the shortest times between two
// operators show how fast they are on that machine. Unknown for other
// recorders, for files rounded to microseconds, and where operators are too far
// apart.
RecorderCost CostOfRecording(const Trace& trace, const OpTree& tree,
                             const Steps& steps = {});

}  // namespace stepscope
