#include "evidence/tensors/index_puts.h"

#include <algorithm>

#include "evidence/program/op_shapes.h"
#include "ops/contains.h"

namespace stepscope {

RowId IndexPutAround(const Trace& trace, RowId op) {
  RowId put = kNone;
  for (; op != kNone; op = trace.ops()[op].parent) {
    if (trace.name(trace.ops()[op].name).ends_with("index_put_impl_")) put = op;
  }
  return put;
}

bool IsDeterministicSum(const Trace& trace, RowId put) {
  for (RowId row = put; row != kNone; row = trace.ops()[row].parent) {
    if (IsAnyOf(PlainNameOf(trace, row), {"scatter_add", "index_add"})) {
      return true;
    }
  }
  return false;
}

bool SumsDeterministically(const Trace& trace) {
  return std::ranges::any_of(trace.kernels(), [&](const Kernel& kernel) {
    if (!Contains(trace.name(kernel.name), "indexing_backward")) return false;
    const RowId put = IndexPutAround(trace, kernel.op);
    return put != kNone && IsDeterministicSum(trace, put);
  });
}

}  // namespace stepscope
