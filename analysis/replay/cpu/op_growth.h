// Which part of an op's time grows with the batch, on a CPU.
//
// Weights are as large whatever the batch. A convolution or product that spends
// more time on its arithmetic than the best of its kind in the same recording
// does spends the rest on moving weights, as far as their size explains it.
#pragma once

#include <stepscope/trace.h>

#include <map>
#include <vector>

#include "ops/op_traits.h"

namespace stepscope {

class OpGrowth {
 public:
  // `ops` are those that compute, in the steps that are replayed.
  OpGrowth(const Trace& trace, const std::vector<RowId>& ops);

  // Of the time of `op`, what stays the same for a larger batch. 0 where shapes
  // were not recorded, and for all that has no weights.
  double FixedNs(RowId op) const;

 private:
  const Trace& trace_;
  std::map<NameId, double> flops_per_ns_;  // the best of ops of that name
  double bytes_per_ns_ = 0;                // of ops that only stream
};

}  // namespace stepscope
