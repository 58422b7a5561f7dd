#include "steps/distances.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace stepscope {

double LowerMedian(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto half =
      values.begin() + static_cast<int64_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, half);
  return *half;
}

// The relative spread of the distances distinguishes a rhythm from chance: it
// is 0 for a clock and 1 for independent events (exponential distribution).
std::pair<double, double> Distances(const std::vector<double>& at) {
  if (at.size() < 2) return {0, 0};
  const double count = static_cast<double>(at.size() - 1);
  const double mean = (at.back() - at.front()) / count;
  double squares = 0;
  for (size_t i = 1; i < at.size(); ++i) {
    squares += std::pow(at[i] - at[i - 1] - mean, 2);
  }
  return {mean, mean > 0 ? std::sqrt(squares / count) / mean : 0};
}

}  // namespace stepscope
