// Figures of few and noisy measurements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace measure {

// A range that holds a figure with 95 % confidence.
struct Interval {
  double low = 0;
  double high = 0;
  bool Holds(double value) const { return low <= value && value <= high; }
};

// 0 of nothing; of an even number the mean of the two in the middle.
double Median(std::vector<double> values);

// The value below which `fraction` (0 to 1) of the others lie, interpolated; 0
// of nothing.
double Quantile(std::vector<double> values, double fraction);

// Where the median of many such values lies. Of six or more by bootstrap: they
// are drawn again, with replacement, 4000 times. Of fewer that would be from
// the least to the most, which holds it too seldom; Student's t is taken
// instead, as if they came from a normal distribution. The same values give the
// same interval; of a single one it is all numbers.
Interval MedianInterval(const std::vector<double>& values);

// The factor by which a standard error becomes half the width of an interval
// of `confidence` (above 0.5, below 1): Student's t, two-sided. Good to 1 %.
// REQUIRES: freedom > 0.
double StudentFactor(double confidence, double freedom);

}  // namespace measure
