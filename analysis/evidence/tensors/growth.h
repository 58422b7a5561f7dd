// Growth: a loop that goes through everything that it has again for each new
// part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

// Batch sizes may happen to grow by the same number two or three times in a
// row.
inline constexpr size_t kLeastGrowing = 5;

// A loop in one step, or several loops of the same sizes.
struct Growth {
  size_t step = 0;
  Span span = {};
  size_t iterations = 0;
  std::vector<int64_t> first = {}, last = {};  // sizes
  double ns = 0;                               // the most that can be saved
  bool trains = false;
};

}  // namespace stepscope
