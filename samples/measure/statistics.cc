#include "statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace measure {
namespace {

constexpr int kDraws = 4000;
constexpr double kTail = 0.025;
// Below, even from the least to the most is no interval of 95 %: that holds the
// median in 1 - 2^(1 - n) of all cases.
constexpr size_t kFewestToDraw = 6;

// P(|T| > t) for Student's t, by Simpson's rule on the density: the tails are
// mapped to a finite stretch by t = tan(angle).
double TwoSidedTail(double t, double freedom) {
  const double scale =
      std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) /
      std::sqrt(freedom * std::acos(-1.0));
  const double begin = std::atan(t), end = std::acos(-1.0) / 2;
  constexpr int kParts = 2000;
  const double width = (end - begin) / kParts;
  double sum = 0;
  for (int i = 0; i <= kParts; ++i) {
    const double angle = begin + i * width;
    const double cosine = std::cos(angle);
    if (cosine <= 1e-12) continue;  // the density is 0 there
    const double x = std::tan(angle);
    const double density =
        std::pow(1 + x * x / freedom, -(freedom + 1) / 2) / (cosine * cosine);
    sum += density * (i == 0 || i == kParts ? 1 : i % 2 == 1 ? 4 : 2);
  }
  return 2 * scale * sum * width / 3;
}

Interval StudentInterval(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (double value : values) mean += value / count;
  for (double value : values) squares += (value - mean) * (value - mean);
  const double error = std::sqrt(squares / (count - 1) / count);
  const double half = StudentFactor(1 - 2 * kTail, count - 1) * error;
  return {mean - half, mean + half};
}

}  // namespace

double Median(std::vector<double> values) {
  return Quantile(std::move(values), 0.5);
}

double Quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double part = place - static_cast<double>(below);
  return values[below] + part * (values[above] - values[below]);
}

Interval MedianInterval(const std::vector<double>& values) {
  if (values.size() < 2) {
    const double infinity = std::numeric_limits<double>::infinity();
    return {-infinity, infinity};
  }
  if (values.size() < kFewestToDraw) return StudentInterval(values);
  std::mt19937_64 random(1);
  std::uniform_int_distribution<size_t> any(0, values.size() - 1);
  std::vector<double> medians(kDraws), drawn(values.size());
  for (double& median : medians) {
    for (double& value : drawn) value = values[any(random)];
    median = Median(drawn);
  }
  return {Quantile(medians, kTail), Quantile(medians, 1 - kTail)};
}

double StudentFactor(double confidence, double freedom) {
  double low = 0, high = 1000;
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (TwoSidedTail(middle, freedom) > 1 - confidence ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace measure
