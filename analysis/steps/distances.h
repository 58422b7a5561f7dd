// How evenly events lie: what the search for stalls of a run counts with.
#pragma once

#include <utility>
#include <vector>

namespace stepscope {

// The median, the lower one of two: where two kinds of stalls hit one step, its
// excess is too large for either. 0 of none.
double LowerMedian(std::vector<double> values);

// Mean, and standard deviation over mean, of the distances of neighbours. 0 of
// fewer than two. REQUIRES: sorted.
std::pair<double, double> Distances(const std::vector<double>& at);

}  // namespace stepscope
