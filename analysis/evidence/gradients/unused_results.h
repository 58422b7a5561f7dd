// FindUnusedResults(): gradients of weights that a pass hands back to the
// program (torch.autograd.grad) but that the program does not read.
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"

namespace stepscope {

struct UnusedResults {
  // What such passes run for unread gradients: all nodes after the last weight
  // whose gradient is read; of other nodes, the ops that compute unread
  // gradients.
  std::vector<ShortenedOp> ops = {};
  std::vector<size_t> steps = {};  // of the passes; indices into Steps::windows
  double unread = 0;               // unread gradients per pass
  std::vector<Dims> read = {};     // sizes of the gradients that are read
  RowId first = kNone;             // the first node of a pass
};

// A pass hands its gradients back if it stores none in a parameter. Such a
// gradient counts as read if an op takes a tensor of its size between the pass
// and the next pass that stores gradients. Looks only at weights of sizes whose
// parameters are all trained by storing passes. Leaves out passes whose results
// are all unread, because how the program reads them was not recorded, and
// passes that are followed by an op on a list without sizes.
UnusedResults FindUnusedResults(const AnalysisContext& context);

}  // namespace stepscope
