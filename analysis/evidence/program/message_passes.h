// FindMessagePasses(): places where the forward pass of a graph network writes
// one row per edge, by gathering the rows of nodes, only to sum these rows up
// per node. A product with a sparse matrix does the same without such rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

struct MessagePass {
  size_t step = 0;  // index into Steps::windows
  RowId gather = kNone, scatter = kNone;
  // Ops that the product does not need either: those that multiply each row by
  // the weight of its edge, and those that set the sums to zero.
  std::vector<RowId> scaling = {}, zeroing = {};
  // Sizes; 0 where they were not recorded. Rows are gathered from `sources`
  // rows and summed up in `targets` rows.
  int64_t edges = 0, sources = 0, targets = 0;
  double row_bytes = 0, element_bytes = 0;

  bool sized() const { return edges > 0; }
};

// Returns the passes in the steady steps, in time order. Leaves out
// - messages on which other ops compute (a layer, an activation, the difference
//   of both ends): they are no product with a matrix;
// - messages that are taken a second time: the rows are needed in any case;
// - weights that get a gradient, or have one number for each column: no product
//   with a sparse matrix gives these gradients without a row per edge;
// - fewer than two edges per sum, and rows that are only put in another order.
// Where sizes were not recorded, nothing else may run between gather and
// scatter.
std::vector<MessagePass> FindMessagePasses(const AnalysisContext& context);

}  // namespace stepscope
