// Forward passes that run through the same layers, with the same weights, a
// second time in a step, as far as sizes and gradients can tell on the same
// input.
#pragma once

#include <cstddef>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

struct TwinPass {
  size_t step = 0;                // in Steps::windows
  std::vector<RowId> first = {};  // the ops of the pass, views as well
  std::vector<RowId> again = {};  // of the one that repeats it
  std::vector<RowId> nodes = {};  // of `again`, in backward
  std::vector<RowId> sums = {};   // of both passes' gradients
  size_t layers = 0;
  Dims input = {};
  // The engine adds up gradients of the input as well, so it is one tensor.
  bool same_input = false;
  bool input_made = false;  // by one op of the step, in front of both
};

// Of the training thread in the steady steps, in time order. The engine adds up
// the gradients of each weight, so the layers are the same. Left out are passes
// whose inputs must differ: the step makes one of them in between or by layers
// of its own, takes two parts of a larger tensor, or loads two batches; passes
// with a tensor of the input's size inside; and passes whose results meet in
// one op, as those of two views of a sample do.
std::vector<TwinPass> FindTwinPasses(const AnalysisContext& context);

}  // namespace stepscope
