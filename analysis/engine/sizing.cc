#include "engine/sizing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "context/noise.h"

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

}  // namespace

Gain PredictDifference(const AnalysisContext& context, const Edit& edit) {
  const Replay& replay = context.replay;
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
      static_cast<double>(context.replayed.steps.steady.size()), 1);
  const double noise =
      std::abs(gain.expected_ms) * RobustCov(context) / std::sqrt(steps);
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

Gain PredictGain(const AnalysisContext& context, const Edit& edit) {
  Gain gain = PredictDifference(context, edit);
  gain.low_ms = std::max(gain.low_ms, 0.0);
  gain.high_ms = std::min(gain.high_ms, context.stats.mean_ms);
  return gain;
}

Finding Sized(const AnalysisContext& context, Finding finding, const Edit& edit,
              double bound_ns) {
  const double step_ms = context.stats.mean_ms;
  if (context.replay.check().valid && edit != Edit()) {
    finding.gain_kind = GainKind::kPredicted;
    finding.gain = PredictGain(context, edit);
    if (finding.gain.expected_ms <= 0) {
      finding.gain_kind = GainKind::kNone;
      finding.gain = Gain();
    }
  } else if (bound_ns > 0) {
    finding.gain_kind = GainKind::kBound;
    finding.gain = {bound_ns * 1e-6, 0, bound_ns * 1e-6};
  }
  if (finding.gain_kind == GainKind::kPredicted &&
      finding.gain.expected_ms < step_ms) {
    finding.speedup = step_ms / (step_ms - finding.gain.expected_ms);
  }
  return finding;
}

}  // namespace stepscope
