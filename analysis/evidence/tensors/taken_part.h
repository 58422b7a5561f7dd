// TakenPart: the part of a tensor that a selection takes, such as a slice, a
// gather or x[index].
#pragma once

#include <cstddef>
#include <optional>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

struct TakenPart {
  size_t dim = 0;       // the dimension along which it selects
  double share = 1;     // of that dimension
  bool at_end = false;  // touches an end of the dimension
  Dims dims = {};       // sizes of the part
};

// Returns the part of a tensor of size `dims` that `row` takes; nullopt if
// `row` is no selection, or takes everything. Of x[index], the gradient tells
// how many rows it takes, so without one the part is unknown.
std::optional<TakenPart> PartTaken(const AnalysisContext& context, RowId row,
                                   const Dims& dims);

// Returns the dimension of size 1 that `row` removes from a tensor of size
// `dims`; nullopt if `row` is no aten::squeeze.
std::optional<size_t> SqueezedDim(const Trace& trace, RowId row,
                                  const Dims& dims);

}  // namespace stepscope
