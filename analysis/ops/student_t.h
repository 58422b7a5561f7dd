// Student's t: how far the mean of a few values may be off. Two standard errors
// are enough only for many values. With few values the standard deviation is
// itself uncertain, so the interval must be wider.
#pragma once

#include <cstddef>

namespace stepscope {

// The share of outcomes inside an interval: k90 leaves 5 % beyond each end, k95
// 2.5 %.
enum class Within { k90, k95 };

// Returns the factor that turns a standard error into half of that interval.
// REQUIRES: `degrees` (the number of values less one, for a mean) is at least
// 1.
double StudentT(size_t degrees, Within within);

}  // namespace stepscope
