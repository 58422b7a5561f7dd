// OpGrowth: which part of an op's time on a CPU is proportional to the batch
// size.
//
// Weights have the same size for any batch, so the time to move them does not
// grow. If a convolution or product is slower than the best arithmetic rate of
// its kind in the recording, the difference is taken as the time to move its
// weights, as far as their size explains it. If all products of a recording
// have few rows, all of them are slow. Therefore the best rate of a product is
// never taken to be lower than what any server core reaches.
//
// If parameters get gradients, their sizes show which operand of a product is
// the weights, and that inputs and constants (such as the adjacency matrix of a
// graph) are not. A product that makes the gradient of weights touches new
// memory of that size: all its time beyond the arithmetic is fixed.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ops/op_traits.h"

namespace stepscope {

// Operations per ns (GFLOP/s) of one core in a large 32-bit product: about half
// of the 32 per cycle that a core with AVX2 can do at 3 GHz.
inline constexpr double kUsualFlopsPerNs = 50;

class OpGrowth {
 public:
  // Measures the rates of `ops`, the computing ops of the replayed steps.
  // `trace` must outlive this.
  OpGrowth(const Trace& trace, const std::vector<RowId>& ops);

  // Returns the time in ns that `op` takes for any batch size, beyond
  // kOpOwnNs. 0 if shapes were not recorded, and for ops without weights.
  double FixedNs(RowId op) const;
  // Returns the time in ns that the arithmetic of `op` alone takes, as part of
  // a large product of its kind; -1 if its sizes were not recorded.
  double ArithmeticNs(RowId op) const;
  // Returns the least time in ns that the matrix product `op` takes as part of
  // a large one, at the best rate of any product here. Used for upper bounds. 0
  // if `op` is not a product, or if its sizes were not recorded.
  double LeastProductNs(RowId op) const;

 private:
  struct Parts {
    double arithmetic_ns = -1;
    double moving_ns = 0;  // weights
  };
  Parts PartsOf(RowId op) const;

  const Trace& trace_;
  std::set<std::pair<int64_t, int64_t>> gradients_;  // sides of matrices
  // Sides of matrices that may be weights, if known.
  std::optional<std::set<std::pair<int64_t, int64_t>>> weights_;
  std::map<NameId, double> flops_per_ns_;  // best rate, by op name
  double product_rate_ = 0;  // flops per ns; the best of the matrix products
  double bytes_per_ns_ = 0;  // best rate of elementwise ops
};

}  // namespace stepscope
