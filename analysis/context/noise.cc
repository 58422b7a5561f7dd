#include "context/noise.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace stepscope {

double RobustCov(const AnalysisContext& context) {
  const StepStats& stats = context.stats;
  if (stats.steady < 2 || stats.median_ms <= 0) return 0;
  std::vector<double> lengths, deviations;
  double mean = 0;
  for (size_t i : context.steps.steady) {
    lengths.push_back((context.steps.windows[i].tiled.length() -
                       context.splits[i][Cause::kData]) *
                      1e-6);
    mean += lengths.back() / static_cast<double>(stats.steady);
  }
  const double median = Median(lengths);
  double squares = 0;
  for (double length : lengths) {
    deviations.push_back(std::abs(length - median));
    squares += (length - mean) * (length - mean);
  }
  const double deviation =
      std::min(std::sqrt(squares / static_cast<double>(stats.steady - 1)),
               // 1.4826 times the median absolute deviation estimates the
               // standard deviation of normally distributed values.
               1.4826 * Median(std::move(deviations)));
  return deviation * std::sqrt(1 - context.sizes.explained) / stats.median_ms;
}

double MinReportableGainMs(const AnalysisContext& context) {
  double share = 0.01;
  const double cov = RobustCov(context);
  if (cov > 0.01) {
    // Two standard errors of a mean cover 95 % of its chance variation.
    share = std::max(share, 2 * cov / std::sqrt(context.stats.steady));
  }
  return std::max(share * context.stats.mean_ms, 0.1);
}

}  // namespace stepscope
