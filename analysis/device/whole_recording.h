// WholeRecording: the time split of a recording without steps, taken as one.
#pragma once

#include <stepscope/trace.h>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "timeline/causes.h"

namespace stepscope {

struct WholeRecording {
  Span span;  // from the first op, call or activity to the last; empty if
              // nothing was recorded
  CauseTimes split;  // adds up to the length of `span`
};

// `thread` is the training thread; kNone if unknown, and then a CPU-only run
// has no split.
WholeRecording SplitWhole(const Trace& trace, const OpTree& tree, RowId thread);

}  // namespace stepscope
