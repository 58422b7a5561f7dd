// FindWrittenAttention(): attention that a program, or a fallback of PyTorch,
// computes in separate ops: a batched product makes the scores, elementwise ops
// scale and mask them, softmax follows, and a second batched product.
#pragma once

#include <stepscope/trace.h>

#include <string>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

struct WrittenAttention {
  RowId scores = kNone;   // the op that makes the scores
  RowId softmax = kNone;  // aten::_softmax
  RowId values = kNone;   // the op that multiplies with the values
  // The ops between the two products, including softmax; outermost calls. In a
  // fallback, all of its ops beside the two products.
  std::vector<RowId> between = {};
  std::string chain = {};          // "bmm > div > _softmax > bmm"
  std::vector<int64_t> dims = {};  // of the scores; empty if unknown
  double score_bytes = -1;         // -1: unknown
  bool drops = false;              // dropout is active
  bool trains_mask = false;        // the mask needs a gradient (a trained bias)
  bool causal = false;     // judged by sizes: one square mask for all heads
  RowId fallback = kNone;  // the aten::_scaled_dot_product_attention_math
                           // around it, if any
  // The autograd nodes of `between` and of the two products. Without the sum of
  // the gradients of a trained mask, which is needed with a fused kernel, too.
  std::vector<RowId> backward = {}, backward_products = {};
};

// Returns the attention in the steady steps that scaled_dot_product_attention
// could compute. Leaves out chains with an op between the products that it does
// not support (tanh of the scores), and chains whose recorded sizes do not fit.
std::vector<WrittenAttention> FindWrittenAttention(
    const AnalysisContext& context);

}  // namespace stepscope
