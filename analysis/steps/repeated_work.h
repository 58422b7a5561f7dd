// Steps of a recording that has neither step marks nor ranges that recur: what
// the training thread runs, or what is launched, over and over.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

#include "ops/op_traits.h"
#include "steps/step_window.h"

namespace stepscope {

struct RepeatedWork {
  std::vector<StepWindow> windows;  // host spans in time order; may be empty
  std::string first;  // what each step begins with: "the op \"aten::conv2d\""
};

// Looks at the outermost ops of `thread`, the training thread. In a recording
// without ops it looks at the launches instead, and without launches at the
// kernels of the busiest stream, whose times then stand for the host's.
//
// A step must recur at least three times, with much the same work each time,
// and cover most of the recording. In 90 % of its occurrences, it must update
// the parameters, or have a backward pass, or, where the program only infers,
// upload something or read a result. Without this, the layers of one pass and
// the loops of one step would look like steps. A benchmark loop that brings
// nothing new has steps only if it is all that was recorded.
RepeatedWork FindRepeatedWork(const Trace& trace, const OpTree& tree,
                              RowId thread);

}  // namespace stepscope
