// RecorderCost: how long the recorder itself takes per event. The step time
// without the recorder is estimated from it.
#pragma once

#include <stepscope/trace.h>

#include "ops/intervals.h"
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

// Returns the cost per event. stepscope's recordings state the cost of an
// operator, measured on their machine under ideal conditions. With a GPU, CUPTI
// adds to it: if the steps before the window were timed, the difference between
// them and the recorded steps counts, if it is more.
//
// torch.profiler's recordings state nothing, so the cost is estimated. The
// callbacks run between operators, so the shortest times between two operators
// show how fast the callbacks are on that machine.
//
// Unknown for other recorders, for files rounded to microseconds, and with few
// operators.
RecorderCost CostOfRecording(const Trace& trace, const OpTree& tree,
                             const Steps& steps = {});

// The number of Python frames of `thread` that begin in `window`.
double FramesIn(const Trace& trace, RowId thread, Span window);

}  // namespace stepscope
