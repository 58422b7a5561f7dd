// PaddingMask(): finds masks which show that the samples of a batch are padded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "context/analysis_context.h"
#include "ops/contains.h"
#include "ops/op_arguments.h"

namespace stepscope {

// Returns the mask that the forward op `op` takes, if it masks elements of a
// batch and is the same for all features or queries of a sample: [batch, 1, 1,
// length]. Otherwise the result is not known().
inline TensorShape PaddingMask(const AnalysisContext& context, RowId op) {
  const std::string_view name =
      context.trace.name(context.trace.ops()[op].name);
  size_t at = 1;
  if (name == "aten::where") {
    at = 0;
  } else if (name == "aten::scaled_dot_product_attention") {
    at = 3;
  } else if (!IsAnyOf(name, {"aten::masked_fill", "aten::masked_fill_"})) {
    return {};
  }
  if (context.tree.in_backward(op)) return {};
  const TensorShape mask = TensorArgument(context.trace, op, at);
  return mask.dims.size() >= 2 && mask.dims[0] >= 2 && mask.dims.back() > 0 &&
                 std::ranges::count(mask.dims, 1) > 0
             ? mask
             : TensorShape();
}

}  // namespace stepscope
