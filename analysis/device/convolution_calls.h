// ConvolutionCalls: the calls of convolutions, and those in which cuDNN
// searches for the fastest algorithm.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

namespace stepscope {

struct ConvolutionCall {
  RowId op = kNone;  // the innermost op that is a convolution
  // True if the call launches more different kernels than one algorithm has,
  // and allocates memory or records events, or reads the times of several
  // kernels. A search does so because it needs workspace for each candidate and
  // times it with events.
  bool searches = false;
  int64_t fastest_ns = 0;  // the shortest of its products and convolutions
};

class ConvolutionCalls {
 public:
  explicit ConvolutionCalls(const Trace& trace);

  // The calls that launch products or convolutions, in time order.
  const std::vector<ConvolutionCall>& all() const { return calls_; }
  // True if `op` is, or runs inside, a convolution that searches. False for
  // kNone.
  bool Searches(RowId op) const;

 private:
  std::vector<RowId> around_;  // for each op, the convolution; or empty
  std::vector<ConvolutionCall> calls_;
};

}  // namespace stepscope
