// NodeStacks: estimates the time that anomaly mode spends on stack traces of
// autograd nodes, which is hidden inside the ops that make the nodes.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"

namespace stepscope {

// Time in ns that an op takes before it computes: checking arguments and
// choosing a kernel. Typical of ATen ops on one core.
inline constexpr double kOpOwnNs = 5'000;

// In anomaly mode, an op that makes an autograd node unwinds about a hundred
// stack frames for it, which often takes longer than the op itself. The
// estimate for an op is its own time minus the time of its backward node. The
// limit is ten times the estimate for views, which compute nothing. If no
// backward pass visits the node, the estimate is the median over the ops of the
// same name.
class NodeStacks {
 public:
  // `unused` are the spans whose nodes no backward pass visits. `trace` and
  // `unused` must outlive this.
  NodeStacks(const Trace& trace, const OpTree& tree,
             const std::vector<Span>& unused);

  // The share of the op's own time (without child ops) that is spent on the
  // stack trace, 0 to 1; 0 without anomaly mode.
  double PartOf(RowId row) const;
  // True if the op begins in one of the `unused` spans.
  bool InUnusedGraph(RowId row) const;

 private:
  bool IsNode(const Op& op) const;
  double LongerForwardNs(RowId row) const;

  const Trace& trace_;
  const std::vector<Span>& unused_;
  std::vector<double> own_ns_, backward_ns_;  // by row of the forward op
  std::vector<double> usual_ns_;              // by NameId
  double most_ns_ = 0;                        // upper limit of an estimate
};

}  // namespace stepscope
