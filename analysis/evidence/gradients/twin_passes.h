// Finds forward passes that a step runs twice: through the same layers, with
// the same weights and, as far as sizes and gradients can tell, on the same
// input.
#pragma once

#include <cstddef>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

struct TwinPass {
  size_t step = 0;                // index into Steps::windows
  std::vector<RowId> first = {};  // ops of the first pass, with views
  std::vector<RowId> again = {};  // ops of the pass that repeats it
  std::vector<RowId> nodes = {};  // backward nodes of `again`
  std::vector<RowId> sums = {};   // sums of the gradients of both passes
  size_t layers = 0;
  Dims input = {};
  // True if the engine also adds up gradients of the input, so that both passes
  // use the same tensor.
  bool same_input = false;
  bool input_made = false;  // by one op of the step, before both
};

// Returns the twin passes of the training thread in the steady steps, in time
// order. The layers are known to be the same, because the engine adds up two
// gradients for each weight. Left out are
//
// - passes whose inputs must differ: the step computes one of the inputs
// between the passes or with layers of its own, splits a larger tensor, or
// loads two batches;
// - passes with a tensor of the input's size inside;
// - passes whose results meet in one op, as those of two views of a sample do.
std::vector<TwinPass> FindTwinPasses(const AnalysisContext& context);

}  // namespace stepscope
