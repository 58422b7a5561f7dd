// WholeRecording: a recording without steps, treated as a single step.
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

// Returns the span and the time split of the whole recording. `thread` is the
// training thread; if it is kNone (unknown), a CPU-only run has no split.
WholeRecording SplitWhole(const Trace& trace, const OpTree& tree, RowId thread);

// How much of a recording of a GPU passes with starting up: creating the
// device's context, loading kernels and libraries, getting memory from the
// driver, as far as the device is idle meanwhile. In ns.
struct StartUp {
  int64_t ns = 0, of_ns = 0;
  bool is_most() const;  // at least 30 %, or nothing was recorded
};
StartUp MeasureStartUp(const Trace& trace, RowId thread);

// Makes the whole recording the only window of `steps`, which has none, so that
// the rules judge it like a step. Leaves `steps` unchanged if the training
// thread is unknown. Also if starting up takes at least 30 % of the recording,
// because the rules would give advice on one-off work as if it recurred.
void TakeWholeRecording(const Trace& trace, Steps& steps);

}  // namespace stepscope
