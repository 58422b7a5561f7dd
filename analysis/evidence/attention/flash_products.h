// How long attention takes in FlashAttention-2, PyTorch's flash kernel.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

// Returns the share of the scores that a flash kernel computes under a causal
// mask: it skips blocks of scores that the mask hides, so half of them, plus
// half a block per row of `length` scores. Source: FlashAttention
// (arxiv.org/abs/2205.14135), 128 keys in a block.
double CausalShare(double length);

// How long products take in a fused kernel, as a share of their recorded time.
// Separate products write the scores to memory and read them again, which often
// limits them; a fused kernel keeps them on the chip.
class FlashProducts {
 public:
  explicit FlashProducts(const AnalysisContext& context);

  // Returns the share for `row`, which is a product, an autograd node with
  // products or a whole attention, and of which a fused kernel computes the
  // share `computed`. That share itself if the sizes or the device are not
  // known, or the type is not a 16-bit one. `in_16_bits`: the fused kernel
  // computes in 16 bits, whatever the type of the products.
  double Left(RowId row, double computed, bool in_16_bits = false) const;

 private:
  const AnalysisContext& m_;
  const std::vector<double> device_ns_;  // by op
};

}  // namespace stepscope
