// Finds large tensors that a step computes and then uses only a small part of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "context/analysis_context.h"
#include "ops/op_arguments.h"

namespace stepscope {

// A chain of ops that makes a large tensor, and the ops that take parts of it.
struct LateSelection {
  // What makes the large tensor, which decides how to select first.
  enum class Maker : uint8_t {
    kGather,
    kProduct,
    kScores,  // a product from which a gather takes columns
    kSort,
    kShuffle,
    kElementwise
  };

  size_t step = 0;  // index into Steps::windows
  std::vector<RowId> ops = {}, selections = {};
  Dims dims = {};
  int64_t bytes = 0;
  double used = 0;        // share of the tensor
  double left = 0;        // least share of the time that remains
  int64_t behind_ns = 0;  // pauses after the ops, which free memory
  Maker maker = Maker::kElementwise;
  bool sure = true;  // its source is known to be another tensor
};

// Returns the chains in the forward ops of the steady steps, each of a tensor
// of 1 MiB or more of which less than half is used.
std::vector<LateSelection> FindLateSelections(const AnalysisContext& context);

}  // namespace stepscope
