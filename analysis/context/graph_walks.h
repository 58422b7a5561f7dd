// FindGraphWalks(): which autograd nodes each call of backward() or
// autograd.grad() ran.
#pragma once

#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"
#include "steps/steps.h"

namespace stepscope {

// An AccumulateGrad node.
struct KeptGradient {
  RowId row = kNone;                   // the outermost range of the engine
  std::vector<int64_t> gradient = {};  // its sizes, not its values
  bool sized = false;                  // these were recorded
  bool adds = false;                   // to a gradient already there
};

struct WalkedNode {
  RowId row = kNone;  // the outermost range of the engine
  int64_t sequence = -1;
  std::vector<KeptGradient> kept = {};  // right after the node
  // The engine's additions of this node's gradients to those that other nodes
  // of the pass computed for the same tensor.
  std::vector<RowId> added = {};
};

// The nodes that one call ran on one thread, in time order. Calls without a
// common node may appear as one.
struct GraphWalk {
  size_t step = 0;  // index into Steps::windows
  Span span = {};
  std::vector<WalkedNode> nodes = {};
  // True if nearly all ops inside the nodes record nodes in turn, which shows
  // create_graph=True.
  bool records = false;
};

// Returns the backward passes of the steady steps over graphs of the training
// thread, in time order. Leaves out passes inside nodes (reentrant
// checkpoints).
std::vector<GraphWalk> FindGraphWalks(const Trace& trace, const OpTree& tree,
                                      const Steps& steps);

}  // namespace stepscope
