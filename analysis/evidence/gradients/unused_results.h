// FindUnusedResults(): gradients of weights that a pass hands back to the
// program (torch.autograd.grad), and that the program does not read.
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "evidence/program/shortened_ops.h"
#include "ops/op_arguments.h"

namespace stepscope {

struct UnusedResults {
  // What such passes run for them: all nodes behind the last weight whose
  // gradient is read; of other nodes, the ops that make unread ones.
  std::vector<ShortenedOp> ops = {};
  std::vector<size_t> steps = {};  // of the passes, in Steps::windows
  double unread = 0;               // gradients, per pass
  std::vector<Dims> read = {};     // sizes of those that are read
  RowId first = kNone;             // the first node of a pass
};

// A pass hands its gradients back if it keeps none in a parameter. One of them
// counts as read if an op takes a tensor of its size between the pass and the
// next one that keeps gradients. Only weights of sizes that other passes train,
// all of them, are looked at. A pass of which nothing is read is left
// out (how it is read was not recorded), and so is one behind which an op takes
// a list without sizes.
UnusedResults FindUnusedResults(const AnalysisContext& context);

}  // namespace stepscope
