// Does the device slow itself down?
// In no guide. Power and heat limits show as throttle reasons; what they cost
// shows where the same kernel with the same shape takes longer step by step.
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "context/rule.h"
#include "device/device_ledger.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr double kThrottledShare = 0.10;                 // of the samples
constexpr double kDrift = 0.03;                          // of the kernels' time
constexpr int64_t kPowerCap = 4, kHardwareSlowdown = 8;  // CUPTI's bits
constexpr size_t kStepsForDrift = 3;

// Mean time of equal kernels (name, grid and block) in some steps.
using Shape =
    std::tuple<NameId, std::array<int32_t, 3>, std::array<int32_t, 3>>;
struct OneStep {
  double ns = 0;
  int64_t calls = 0;
};
struct Times {
  double early_ns = 0, late_ns = 0, ns = 0;
  int64_t early = 0, late = 0, calls = 0;
  std::map<size_t, OneStep> by_step = {};  // early ones
  // Mean in the early step that was fastest.
  double least_ns() const {
    double least = early_ns / static_cast<double>(early);
    for (const auto& [step, one] : by_step) {
      least = std::min(least, one.ns / static_cast<double>(one.calls));
    }
    return least;
  }
};

struct Drift {
  double share = 0;        // late / early - 1, over all equal kernels
  double ns_per_step = 0;  // what the steps lose against the fastest early one
};

Drift KernelDrift(const AnalysisContext& m) {
  const std::vector<size_t>& steady = m.steps.steady;
  const size_t third = std::max<size_t>(1, steady.size() / 3);
  std::map<Shape, Times> shapes;
  for (const Kernel& kernel : m.trace.kernels()) {
    // Collectives wait for other ranks.
    if (kernel.device != m.ledger->device ||
        IsCollectiveKernel(m.trace.name(kernel.name))) {
      continue;
    }
    const auto window = std::ranges::upper_bound(
        m.steps.windows, kernel.begin_ns, {},
        [](const StepWindow& w) { return w.tiled.end_ns; });
    if (window == m.steps.windows.end()) continue;
    const auto at = std::ranges::find(
        steady, static_cast<size_t>(window - m.steps.windows.begin()));
    if (at == steady.end()) continue;
    const auto position = static_cast<size_t>(at - steady.begin());
    Times& times = shapes[{kernel.name, kernel.grid, kernel.block}];
    const double ns = static_cast<double>(kernel.end_ns - kernel.begin_ns);
    times.ns += ns;
    ++times.calls;
    if (position < third) {
      times.early_ns += ns;
      ++times.early;
      OneStep& first = times.by_step[position];
      first.ns += ns;
      ++first.calls;
    } else if (position >= steady.size() - third) {
      times.late_ns += ns;
      ++times.late;
    }
  }
  double early = 0, late = 0, lost = 0;
  for (const auto& [shape, times] : shapes) {
    if (times.early == 0 || times.late == 0) continue;
    const double mean = times.early_ns / times.early;
    early += mean * times.late;
    late += times.late_ns;
    lost += times.ns - times.least_ns() * times.calls;
  }
  if (early <= 0) return {};
  return {late / early - 1,
          std::max(0.0, lost / static_cast<double>(steady.size()))};
}

Verdict CheckThrottle(const AnalysisContext& m) {
  int64_t known = 0, power = 0, hardware = 0, throttled = 0;
  int32_t least_mhz = INT32_MAX, most_mhz = -1;
  for (const DeviceSample& sample : m.trace.device_samples()) {
    if (sample.device != m.ledger->device) continue;
    if (sample.sm_clock_mhz > 0) {
      least_mhz = std::min(least_mhz, sample.sm_clock_mhz);
      most_mhz = std::max(most_mhz, sample.sm_clock_mhz);
    }
    if (sample.throttle_reasons < 0) continue;
    ++known;
    power += (sample.throttle_reasons & kPowerCap) != 0;
    hardware += (sample.throttle_reasons & kHardwareSlowdown) != 0;
    throttled +=
        (sample.throttle_reasons & (kPowerCap | kHardwareSlowdown)) != 0;
  }
  if (known == 0) {
    return Skip("no throttle reasons were recorded");
  }
  if (m.steps.steady.size() < kStepsForDrift) {
    return Skip("too few steady steps to see kernels slow down");
  }
  if (throttled < kThrottledShare * known) return Clean();
  const Drift drift = KernelDrift(m);
  if (drift.share < kDrift) return Clean();
  Finding finding;
  finding.confidence = Confidence::kProven;
  finding.evidence =
      "The device limits its clocks in " + std::to_string(throttled) + " of " +
      Count(known, "sample") + " (power cap " + std::to_string(power) +
      ", hardware slowdown " + std::to_string(hardware) + ")" +
      (most_mhz > 0 ? ", down to " + std::to_string(least_mhz) + " from " +
                          std::to_string(most_mhz) + " MHz"
                    : std::string()) +
      ", and the same kernels take " + Percent(drift.share) +
      " longer at the end than at the beginning.";
  finding.assumption =
      "at best: kernels stay as fast as in the fastest of the first steps";
  finding.fix_cpp = finding.fix_python =
      "better cooling; the power limit (nvidia-smi -pl); application clocks "
      "that the device can hold (nvidia-smi -ac); compare with other ranks";
  finding.wrong_if =
      "the kernels' inputs changed although their shapes did "
      "not";
  // The steps vary because of it: their noise must not hide it.
  return Fire(Found{.finding = std::move(finding),
                    .bound_ns = drift.ns_per_step,
                    .regardless = true});
}

constexpr Rule kRules[] = {
    {.id = "clock-throttle",
     .question = "Does power or heat slow the device down?",
     .runs = Runs::kGpuOnly,
     .needs = {Kind::kDeviceSample, Kind::kKernel},
     .check = &CheckThrottle,
     .reference = "CUPTI documentation: environment records",
     .detect = "a power cap or hardware slowdown in 10 % of the samples, and "
               "equal kernels (name, grid, block) at least 3 % slower in the "
               "last third of the steps than in the first",
     .avoid = "idle clocks, which are no throttling",
     .fix_cpp = "cooling, power limit, application clocks",
     .fix_python = "cooling, power limit, application clocks"}};

}  // namespace

extern const std::span<const Rule> kClocks = kRules;

}  // namespace stepscope
