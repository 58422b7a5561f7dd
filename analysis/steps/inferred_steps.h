// Steps that nobody marked, told by what the training thread does again and
// again.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

#include "steps/step_window.h"

namespace stepscope {

struct InferredSteps {
  std::vector<StepWindow> windows;  // in time order; empty if none are sure
  std::string step_source;          // "the ends of Optimizer.step"
};

// Between the ends of the optimizer's updates; without any, from the begin of
// the wait for a batch, of an annotation, or of a whole module's forward, to
// its next one. What repeats
// within a pass (layers) is no step: a range counts if its name says so, or if
// each of its turns takes a batch, uploads something or goes backward.
InferredSteps InferSteps(const Trace& trace, RowId thread);

}  // namespace stepscope
