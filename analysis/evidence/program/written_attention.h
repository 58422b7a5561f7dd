// FindWrittenAttention(): attention that a program, or a fallback of PyTorch,
// computes in single ops: a batched product makes the scores, elementwise ops
// scale and mask them, softmax, and a second batched product.
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
  // The ops between the two products, with softmax, outermost calls.
  std::vector<RowId> between = {};
  std::string chain = {};          // "bmm > div > _softmax > bmm"
  std::vector<int64_t> dims = {};  // of the scores; empty if unknown
  double score_bytes = -1;         // -1: unknown
  bool drops = false;              // dropout is active
  bool causal = false;  // as far as sizes tell: one square mask for all heads
  RowId fallback = kNone;  // the aten::_scaled_dot_product_attention_math
                           // it is part of
  // The autograd nodes of `between`, and of the products.
  std::vector<RowId> backward = {}, backward_products = {};
};

// Those of the steady steps that scaled_dot_product_attention could compute. A
// chain is left out if an op between the products is one that it does not have
// (tanh of the scores), if sizes were recorded and do not fit, or if the
// backward pass reduces a gradient of the mask (a trained bias).
std::vector<WrittenAttention> FindWrittenAttention(
    const AnalysisContext& context);

}  // namespace stepscope
