// NodeStacks: what anomaly mode's stack traces of autograd nodes take.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "ops/intervals.h"
#include "ops/op_traits.h"

namespace stepscope {

// What an op costs before it computes.
inline constexpr double kOpOwnNs = 5'000;

// Of each op: the part of its own time in which it keeps the stack trace of the
// autograd node it makes. Anomaly mode unwinds some hundred frames there, which
// takes longer than many an op. Taken for it is what the op takes longer than
// its node does backward, but not much more than views do, which compute
// nothing: there are ops whose backward is the shorter one. A node that no
// backward pass visits costs what those of ops of its name do.
class NodeStacks {
 public:
  // `unused`: where no backward pass visits the nodes; `trace` and it must
  // outlive this.
  NodeStacks(const Trace& trace, const OpTree& tree,
             const std::vector<Span>& unused);

  // The part of the op's own time, 0 to 1; 0 without anomaly mode.
  double PartOf(RowId row) const;
  bool InUnusedGraph(RowId row) const;

 private:
  bool IsNode(const Op& op) const;
  double LongerForwardNs(RowId row) const;

  const Trace& trace_;
  const std::vector<Span>& unused_;
  std::vector<double> own_ns_, backward_ns_;  // by row of the forward op
  std::vector<double> usual_ns_;              // by name
  double most_ns_ = 0;
};

}  // namespace stepscope
