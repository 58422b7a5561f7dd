#include "evidence/program/recurrent_cell.h"

#include <stepscope/op_cost.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/op_arguments.h"

namespace stepscope {
namespace {

// True if aten::cat joins the state, of sizes `state`, and something else into
// rows of `width`.
bool Joins(const Trace& trace, RowId cat, const std::vector<int64_t>& state,
           int64_t width) {
  if (!HasArguments(trace, cat)) return false;
  const Argument& list =
      trace.op_inputs()[trace.ops()[cat].inputs].arguments[0];
  int64_t whole = 0;
  bool has_state = false;
  for (const Argument& one : list.elements) {
    if (one.dims.size() != 2) return false;
    whole += one.dims[1];
    has_state |= one.dims == state;
  }
  return has_state && whole == width && list.elements.size() >= 2;
}

// True if an op of `chain` adds the product's result to another tensor of the
// same sizes, or joins the state and the input to make the operand of
// `product`. The state is `width` wide.
bool MeetsTheInput(const Trace& trace, std::span<const RowId> chain,
                   const MatmulShape& product, int64_t width) {
  return std::ranges::any_of(chain, [&](RowId row) {
    const std::string_view name = trace.name(trace.ops()[row].name);
    if (name == "aten::add" || name == "aten::add_") {
      const std::vector<int64_t> dims = TensorArgument(trace, row, 0).dims;
      return product.k == width && dims.size() == 2 && dims[0] == product.m &&
             (dims[1] == product.n || dims[1] == width);
    }
    return name == "aten::cat" && product.k > width &&
           Joins(trace, row, {product.m, width}, product.k);
  });
}

}  // namespace

bool FeedsItself(const Trace& trace, std::span<const RowId> chain) {
  for (RowId row : chain) {
    if (ClassOfOp(trace.name(trace.ops()[row].name)) != KernelClass::kMatmul) {
      continue;
    }
    const MatmulShape product = CostOf(trace, row).matmul;
    if (product.m <= 0) continue;
    // A plain RNN, a GRU and an LSTM: one product computes all gates side by
    // side.
    for (int64_t gates : {1, 3, 4}) {
      if (product.n % gates == 0 &&
          MeetsTheInput(trace, chain, product, product.n / gates)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace stepscope
