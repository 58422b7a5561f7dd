// Steps of a recording without step marks, inferred from what the training
// thread repeats.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

#include "ops/op_traits.h"
#include "steps/step_window.h"

namespace stepscope {

struct InferredSteps {
  std::vector<StepWindow> windows;  // host spans in time order; may be empty
  std::string step_source;  // "the updates of the optimizer"; "" if empty
};

// Returns steps with one optimizer update each, or one turn of several
// optimizers. A step ends where the next one gets a batch, makes, chooses or
// uploads samples, or starts its model. Without updates, a step runs from one
// occurrence of a repeated range to the next: the wait for a batch, an
// annotation of the program, or the forward pass of a whole module. Such a
// range must occur at least three times, and its steps must cover half of what
// the thread does. It must also either be named like a step, or come with a new
// batch, an upload or a backward pass in 90 % of the steps; this excludes
// layers, which repeat inside one pass. Without such a range, the steps are
// what the thread runs over and over (repeated_work.h). `thread` is the
// training thread.
InferredSteps InferSteps(const Trace& trace, const OpTree& tree, RowId thread);

}  // namespace stepscope
