// The parts of a training step that replay may take away or treat on their own.
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
        unused_graphs(FindUnusedGraphs(trace, tree, steps.thread)),
        optimizer(FindOptimizerSpans(trace, tree, steps)) {}

  ZeroGrad zero_grad;
  std::vector<UnusedGraph> unused_graphs;
  OptimizerSpans optimizer;
};

}  // namespace stepscope
