// Steps of a recording without step marks, inferred from what the training
// thread repeats.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

#include "steps/step_window.h"

namespace stepscope {

struct InferredSteps {
  std::vector<StepWindow> windows;  // host spans in time order; may be empty
  std::string step_source;          // "the ends of Optimizer.step"; "" if empty
};

// Returns the steps between the ends of consecutive optimizer updates. Without
// updates, a step runs from one occurrence to the next of a repeated range: the
// wait for a batch, an annotation of the program, or the forward pass of a
// whole module. Such a range must occur at least three times, cover half of
// what the thread does, and either be named like a step or come with a new
// batch, an upload or a backward pass each time. So layers, which repeat inside
// one pass, are not taken for steps. `thread` is the training thread.
InferredSteps InferSteps(const Trace& trace, RowId thread);

}  // namespace stepscope
