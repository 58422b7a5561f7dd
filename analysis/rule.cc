#include "rule.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace stepscope {
namespace {

// What doubling the threads may bring, and what a worker's batch may cost.
constexpr double kPoorEfficiency = 0.7, kGoodEfficiency = 0.95;
// How near replay comes to the simulator of the tests.
constexpr double kModelError = 0.1;
// Of the step, what another memory format may bring or cost on a CPU.
constexpr double kLayoutError = 0.1;
constexpr double kDearWorker = 1.25, kCheapWorker = 0.9;
// Of the device time that faster work is meant to save, what it may save.
constexpr double kPoorScale = 0.7, kGoodScale = 1.15;

// Spread of the steady steps that one slow step does not blow up. How long they
// wait for batches varies for a known reason: that is no noise.
double RobustCov(const Measured& measured) {
  const StepStats& stats = measured.stats;
  if (stats.steady < 2 || stats.median_ms <= 0) return 0;
  std::vector<double> lengths, deviations;
  double mean = 0;
  for (size_t i : measured.steps.steady) {
    lengths.push_back((measured.steps.windows[i].tiled.length() -
                       measured.splits[i][Cause::kData]) *
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
               1.4826 * Median(std::move(deviations)));
  return deviation / stats.median_ms;
}

}  // namespace

double NoiseOfMeanMs(const Measured& measured) {
  return 2 * measured.stats.cov * measured.stats.mean_ms /
         std::sqrt(std::max<double>(measured.stats.steady, 1));
}

Gain PredictDifference(const Measured& measured, const Edit& edit) {
  const Replay& replay = measured.replay;
  const double now = replay.StepNs({});
  const auto won_ms = [&](double efficiency, double worker_cost,
                          double scale_error) {
    Edit varied = edit;
    varied.efficiency = efficiency;
    varied.worker_cost = worker_cost;
    varied.scale_error = scale_error;
    return (now - replay.StepNs(varied)) * 1e-6;
  };
  Gain gain;
  gain.expected_ms = (now - replay.StepNs(edit)) * 1e-6;
  const double steps = std::max<double>(
      static_cast<double>(measured.replayed.steps.steady.size()), 1);
  const double noise =
      std::abs(gain.expected_ms) * RobustCov(measured) / std::sqrt(steps);
  // Nothing of what is varied below plays a part in it.
  const bool certain =
      replay.device() != nullptr && edit.scales.empty() && edit.workers < 0;
  const double poor = certain
                          ? gain.expected_ms
                          : won_ms(kPoorEfficiency, kDearWorker, kPoorScale);
  const double good = certain
                          ? gain.expected_ms
                          : won_ms(kGoodEfficiency, kCheapWorker, kGoodScale);
  double margin = kModelError * std::abs(gain.expected_ms);
  if (edit.channels_last) margin += kLayoutError * now * 1e-6;
  gain.low_ms = std::min(gain.expected_ms - margin, poor) - noise;
  gain.high_ms = std::max(gain.expected_ms + margin, good) + noise;
  return gain;
}

Gain PredictGain(const Measured& measured, const Edit& edit) {
  Gain gain = PredictDifference(measured, edit);
  gain.low_ms = std::max(gain.low_ms, 0.0);
  gain.high_ms = std::min(gain.high_ms, measured.stats.mean_ms);
  return gain;
}

Finding Sized(const Measured& measured, Finding finding, const Edit& edit,
              double bound_ns) {
  const double step_ms = measured.stats.mean_ms;
  if (measured.replay.check().speaks && edit != Edit()) {
    finding.gain_is = GainKind::kPredicted;
    finding.gain = PredictGain(measured, edit);
    if (finding.gain.expected_ms <= 0) {
      finding.gain_is = GainKind::kNone;
      finding.gain = Gain();
    }
  } else if (bound_ns > 0) {
    finding.gain_is = GainKind::kBound;
    finding.gain = {bound_ns * 1e-6, 0, bound_ns * 1e-6};
  }
  if (finding.gain_is == GainKind::kPredicted &&
      finding.gain.expected_ms < step_ms) {
    finding.speedup = step_ms / (step_ms - finding.gain.expected_ms);
  }
  return finding;
}

double GateMs(const Measured& measured) {
  double share = 0.01;
  const double cov = RobustCov(measured);
  if (cov > 0.01) {
    share = std::max(share, 2 * cov / std::sqrt(measured.stats.steady));
  }
  return std::max(share * measured.stats.mean_ms, 0.1);
}

}  // namespace stepscope
