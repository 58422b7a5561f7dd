// ForwardOps: the ops that made the graphs of the autograd nodes that
// GraphWalks ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "context/analysis_context.h"
#include "ops/intervals.h"

namespace stepscope {

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
