// What the flags of a cube do, alone and in pairs. Rates are compared as
// ratios: 1 is no effect, 1.2 a fifth more samples per second.
//
// The model: log(rate) of a run = its point + its round + noise, the noise of
// all runs being of one size, which what is left of the runs tells. An effect
// is a weighted sum of points, so its error follows.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "measure/grid.h"
#include "measure/statistics.h"

namespace cube {

// The points of a cube and what was measured there.
struct Cube {
  std::vector<measure::Factor> factors;
  std::vector<measure::Point> points;  // not every combination need be there
  // Samples per second: of each point, of each round. All have all rounds.
  std::vector<std::vector<double>> rates;

  double MedianRate(size_t point) const;
  // Of the rounds, half the range from a sixth to five sixths of them, as a
  // fraction of the median: one standard deviation if it is normal.
  double Spread(size_t point) const;
};

struct Ratio {
  double value = 1;
  measure::Interval interval = {1, 1};
  bool Helps() const { return interval.low > 1; }
  bool Hurts() const { return interval.high < 1; }
};

// A flag at one of its values, against its first one.
struct Effect {
  size_t factor = 0;
  size_t level = 0;
  Ratio at_baseline;               // all others at their first value
  Ratio on_average;                // over all others
  bool at_baseline_known = false;  // both points are there
};

// What two flags do together, beside the product of what each does alone, see
// verdict.h.
enum class Together {
  kAsExpected,        // the product of both, as far as the noise can tell
  kHelpOnlyTogether,  // neither helps alone
  kHelpEachOther,     // more than the product, and than the better one
  kCostLess,          // both cost, together less than the product of the costs
  kMixedMore,         // one helps, one costs; together more than the product
  kMore,              // more than the product
  kCostOnlyTogether,  // neither costs alone
  kCostMore,          // both cost, together more than the product of the costs
  kMixedLess,         // one helps, one costs; together less than the product
  kCancel,            // both help, together no more than the better one
  kLess,              // less than the product
};

// Two flags, each at one of its values, averaged over all others.
struct Pair {
  Effect first, second;  // `on_average` is that beside the first value of the
                         // other
  Ratio both;
  Ratio beyond_product;  // both / (first x second)
  Together together = Together::kAsExpected;
};

// One per value that is not the first. Intervals of 95 %.
std::vector<Effect> Effects(const Cube& cube);

// One per pair of such values of different flags, those farthest from the
// product first. The intervals of `beyond_product` hold for all pairs at once
// with 95 % (Bonferroni): of a cube without joint effects 19 in 20 name none.
std::vector<Pair> Pairs(const Cube& cube);

// The one of `pairs` that is of the same values as `pair`; nullptr if none is.
const Pair* SamePair(const std::vector<Pair>& pairs, const Pair& pair);

// "--threads 2", "--bf16", "without --bf16".
std::string LevelText(const measure::Factor& factor, size_t level);

const char* TogetherText(Together together);

}  // namespace cube
