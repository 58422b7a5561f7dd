// FindGraphWalks(): which autograd nodes each call of backward() or
// autograd.grad() ran. ForwardOps: the ops that make such graphs.
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
  std::vector<int64_t> gradient = {};  // its sizes
  bool adds = false;                   // to a gradient that was there
};

struct WalkedNode {
  RowId row = kNone;  // the outermost range of the engine
  int64_t sequence = -1;
  std::vector<KeptGradient> kept = {};  // right behind it
  // The engine's sums of its gradients with those that other nodes of the pass
  // made for the same tensor.
  std::vector<RowId> added = {};
};

// What one call ran on one thread, in time order. Calls that have no node in
// common may count as one.
struct GraphWalk {
  size_t step = 0;  // in Steps::windows
  Span span = {};
  std::vector<WalkedNode> nodes = {};
  // Nearly all ops inside its nodes record nodes in turn: create_graph=True.
  bool records = false;
};

// The passes of the steady steps over graphs of the training thread, in time
// order. Passes inside nodes (reentrant checkpoints) are left out.
std::vector<GraphWalk> FindGraphWalks(const AnalysisContext& context);

// By sizes, how many parameters of these sizes keep a gradient in one pass: of
// the pass in which most do.
std::map<std::vector<int64_t>, size_t> ParametersBySize(
    std::span<const GraphWalk> passes);

// When the engine has done with a node of `thread` that ended at `end_ns`: when
// it begins the next one, or `end_ns` if there is none.
int64_t EndOfEngine(const AnalysisContext& context, RowId thread,
                    int64_t end_ns);

// The outermost ops of the training thread outside backward, and what of the
// host's and the device's time is theirs. Valid while the context lives; any
// thread may read it. REQUIRES: context.steps.thread != kNone.
class ForwardOps {
 public:
  explicit ForwardOps(const AnalysisContext& context);

  // In time order.
  std::vector<RowId> ops;

  Span SpanOf(RowId row) const;
  // The same of a node, with what the engine does behind it.
  Span WithEngine(RowId node) const;
  // The autograd nodes of the op and those that it calls.
  std::vector<RowId> NodesOf(RowId row) const;
  // The index in `ops` of the op that contains `row`; ops.size() if none does.
  size_t IndexOf(RowId row) const;
  // From ops[index] to the next op, but behind the op no longer than calling
  // one takes.
  Span WithCall(size_t index) const;
  // The longer of the time in `spans`, and of the kernels that are launched in
  // them by whatever thread; ns.
  double NsOf(std::vector<Span> spans) const;

 private:
  const AnalysisContext& m_;
};

}  // namespace stepscope
