// What a recording without steps was spent on, all of it together.
#pragma once

#include <stepscope/trace.h>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "timeline/causes.h"

namespace stepscope {

struct WholeRecording {
  Span span;         // from the first op, call or device work to the last
  CauseTimes split;  // adds up to it
};

// `thread` is the training thread, kNone if unknown.
WholeRecording SplitWhole(const Trace& trace, const OpTree& tree, RowId thread);

}  // namespace stepscope
