// FindGraphWalks(): which autograd nodes each call of backward() or
// autograd.grad() ran. ForwardOps: the ops that made these graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

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
std::vector<GraphWalk> FindGraphWalks(const AnalysisContext& context);

// Returns, for each size, how many parameters of that size get a gradient in
// one pass, taking the pass with most.
std::map<std::vector<int64_t>, size_t> ParametersBySize(
    std::span<const GraphWalk> passes);

// Returns when the engine is done with a node of `thread` that ended at
// `end_ns`: when it starts the next node, or `end_ns` if there is none.
int64_t EndOfEngine(const AnalysisContext& context, RowId thread,
                    int64_t end_ns);

// The outermost ops of the training thread outside backward, and the host and
// device time that they take. Valid while the context lives; any thread may
// read it. REQUIRES: context.steps.thread != kNone.
class ForwardOps {
 public:
  explicit ForwardOps(const AnalysisContext& context);

  // The outermost ops, in time order.
  std::vector<RowId> ops;

  Span SpanOf(RowId row) const;
  // The span of a node, including the engine's work after it.
  Span WithEngine(RowId node) const;
  // The autograd nodes of the op and of the ops that it calls.
  std::vector<RowId> NodesOf(RowId row) const;
  // The index in `ops` of the op that contains `row`; ops.size() if none does.
  size_t IndexOf(RowId row) const;
  // The span from the start of ops[index] to the start of the next op. The part
  // after the op's end is at most as long as calling an op takes (kOpCallNs).
  Span WithCall(size_t index) const;
  // Returns the length in ns of `spans`, or the time of the kernels that any
  // thread launches in them, whichever is longer.
  double NsOf(std::vector<Span> spans) const;

 private:
  const AnalysisContext& m_;
};

}  // namespace stepscope
