// StepParts: the parts of a training step that replay can remove or that scale
// differently from the rest. Found once, and used by rules and replay.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "ops/op_traits.h"
#include "steps/optimizer_spans.h"
#include "steps/patterns.h"
#include "steps/steps.h"

namespace stepscope {

struct StepParts {
  StepParts(const Trace& trace, const OpTree& tree, const Steps& steps)
      : zero_grad(FindZeroGrad(trace, tree, steps)),
        unused_graphs(FindUnusedGraphs(trace, tree, steps)),
        optimizer(FindOptimizerSpans(trace, tree, steps)) {}

  ZeroGrad zero_grad;
  std::vector<UnusedGraph> unused_graphs;  // in time order
  OptimizerSpans optimizer;
};

}  // namespace stepscope
