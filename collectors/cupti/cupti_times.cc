#include "cupti_times.h"

#include <algorithm>
#include <cmath>

namespace stepscope {
namespace {

// The narrowest of several readings is used, because an interrupt makes a
// reading wide and useless.
constexpr int kTries = 8;
// A larger difference means that a reading is invalid.
constexpr double kMostDrift = 0.5;

}  // namespace

// CUPTI's clock is read between two readings of ours, and counts as read in the
// middle between them.
CuptiReading ReadCuptiClock(const CuptiApi& api) noexcept {
  CuptiReading best;
  for (int i = 0; i < kTries; ++i) {
    uint64_t cupti_ns = 0;
    const Ticks before = NowTicks();
    const CUptiResult result = api.GetTimestamp(&cupti_ns);
    const Ticks after = NowTicks();
    if (result != CUPTI_SUCCESS || cupti_ns == 0) return best;
    const Ticks width = after - before;
    if (best.valid && width >= best.width) continue;
    best = {.ticks = before + width / 2,
            .cupti_ns = cupti_ns,
            .width = width,
            .valid = true};
  }
  return best;
}

// Two readings make a linear map. The drift is applied only if it exceeds the
// uncertainty of the readings.
CuptiTimes::CuptiTimes(const CuptiReading& begin, const CuptiReading& end,
                       const ClockMap& clock)
    : cupti_begin_ns_(begin.cupti_ns),
      epoch_begin_ns_(clock.ToNs(begin.ticks)) {
  // If the same reading was given twice, or the clock went back, only the
  // offset is used.
  if (end.cupti_ns <= begin.cupti_ns) return;
  const auto cupti_passed = static_cast<double>(end.cupti_ns - begin.cupti_ns);
  const auto passed =
      static_cast<double>(clock.ToNs(end.ticks) - epoch_begin_ns_);
  const double unsure_ns =
      clock.ns_per_tick() * static_cast<double>(begin.width + end.width);
  if (std::abs(passed - cupti_passed) <= unsure_ns) return;
  drift_ns_ = passed - cupti_passed;
  drift_ = std::clamp(passed / cupti_passed - 1, -kMostDrift, kMostDrift);
}

}  // namespace stepscope
