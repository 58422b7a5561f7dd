// RecorderCost: how long the recorder itself takes per event, from which the
// step time without it is estimated.
#pragma once

#include <stepscope/trace.h>

#include "ops/op_traits.h"

namespace stepscope {

// In ns; 0 where it is not known.
struct RecorderCost {
  double op_ns = 0;        // per operator
  double frame_ns = 0;     // per Python frame
  bool estimated = false;  // from the recording's own gaps, not measured
};

// Stepscope measures its cost on the machine and writes it down. torch.profiler
// does not; but its callbacks run between operators, so the shortest times
// between two of them show how fast they are on the machine of the recording.
// Unknown for other recorders, for files rounded to microseconds, and where
// operators are too far apart.
RecorderCost CostOfRecording(const Trace& trace, const OpTree& tree);

}  // namespace stepscope
