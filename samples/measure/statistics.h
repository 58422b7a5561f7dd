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

// The median of `values`, and how far that of other measurements of the same
// thing would lie apart: the values are drawn again, with replacement, 4000
// times. The same values give the same interval. A single value tells nothing
// about its spread: its interval is all numbers.
Interval BootstrapMedian(const std::vector<double>& values);

// The factor by which a standard error becomes half the width of an interval
// of `confidence` (above 0.5, below 1): Student's t, two-sided. Good to 1 %.
// REQUIRES: freedom > 0.
double StudentFactor(double confidence, double freedom);

}  // namespace measure
