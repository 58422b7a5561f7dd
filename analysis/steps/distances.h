// How evenly events are spaced. Used by the search for recurring stalls.
#pragma once

#include <utility>
#include <vector>

namespace stepscope {

// Returns the median; for an even count, the lower of the middle two values,
// because a step that two kinds of stalls hit has too large an excess for
// either. 0 if `values` is empty.
double LowerMedian(std::vector<double> values);

// Returns the mean of the distances between neighbours, and their standard
// deviation / mean. Both are 0 for fewer than two events. REQUIRES: `at` is
// sorted.
std::pair<double, double> Distances(const std::vector<double>& at);

}  // namespace stepscope
