#include "ops/student_t.h"

#include <algorithm>
#include <array>

namespace stepscope {
namespace {

// Quantiles of Student's distribution for 1 to 12 degrees of freedom.
constexpr std::array k90 = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943,
                            1.895, 1.860, 1.833, 1.812, 1.796, 1.782};
constexpr std::array k95 = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447,
                            2.365,  2.306, 2.262, 2.228, 2.201, 2.179};

}  // namespace

double StudentT(size_t degrees, Within within) {
  const auto& table = within == Within::k90 ? k90 : k95;
  if (degrees <= table.size()) return table[std::max<size_t>(degrees, 1) - 1];
  // The first terms of the expansion around the normal distribution (Abramowitz
  // and Stegun, 26.7.5), accurate to 0.001 for this many degrees.
  const double z = within == Within::k90 ? 1.6449 : 1.9600;
  const auto n = static_cast<double>(degrees);
  return z + (z * z * z + z) / (4 * n) +
         (5 * z * z * z * z * z + 16 * z * z * z + 3 * z) / (96 * n * n);
}

}  // namespace stepscope
