// WholeRecording: a recording without steps, taken as one.
#pragma once

#include <stepscope/trace.h>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/step_window.h"
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

// Makes the whole recording the only window of `steps`, which has none, so that
// the rules judge it like a step. Leaves `steps` as they are if the training
// thread is unknown, or if starting up takes much of the recording: what
// happens once per process would be advised on as if it recurred.
void TakeWholeRecording(const Trace& trace, Steps& steps);

}  // namespace stepscope
