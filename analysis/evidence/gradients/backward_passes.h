// FindBackwardPasses(): the gradients that each call of backward() stored in
// parameters, in time order.
#pragma once

#include <map>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// A gradient that a parameter's AccumulateGrad node stored.
struct StoredGradient {
  RowId row = kNone;
  TensorShape gradient = {};
  bool adds = false;  // to a gradient already there
  bool unread = false;
  bool cleared = false;  // unread, because it was cleared first
};
struct PassNode {
  RowId row = kNone;  // the outermost range of the engine
  std::vector<StoredGradient> kept = {};
};
// The nodes that one call of backward() ran, in time order.
struct BackwardPass {
  size_t step = 0;  // index into Steps::windows
  std::vector<PassNode> nodes = {};
};

struct BackwardPasses {
  std::vector<BackwardPass> passes = {};
  bool nested = false;   // a node runs another backward pass
  bool threads = false;  // several threads run nodes with parameters
  bool sizes_known = true;
};

// Returns the passes of the recording, told apart by the numbers of their
// nodes.
BackwardPasses FindBackwardPasses(const AnalysisContext& context);

using KeptBySize = std::map<Dims, std::vector<StoredGradient*>>;

// The result is valid while the pass lives and gets no more nodes.
KeptBySize GroupedBySize(BackwardPass& pass);

}  // namespace stepscope
