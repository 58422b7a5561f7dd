#include "stall_recorder.h"

#include <stepscope/analysis.h>

#include <algorithm>
#include <cmath>

namespace stepscope {
namespace {

// A collector's first steps are slower, because buffers and libraries are set
// up.
constexpr int64_t kWarmupSteps = 2;
constexpr int64_t kStepsBefore = 2;  // recorded steps before the stall
constexpr int64_t kStepsAfter = 1;
// The period is an estimate, so a window may miss the stall.
constexpr int kMostTries = 3;
// A stall below this share of the run is not worth a window.
constexpr double kMinFrac = 0.001;
// The training thread goes on while a window is planned, so plan this much
// ahead.
constexpr double kPlanAheadMs = 100;

bool HasPeriod(const RunStall& stall) {
  return stall.rhythm == RunStall::Rhythm::kEvery;
}

}  // namespace

std::unique_ptr<ClosedWindow> StallRecorder::EndStep(int64_t next) {
  if (session_ == nullptr) {
    // The window opens here. The -1 makes sure that this happens only once.
    begin_.store(-1, std::memory_order_relaxed);
    Session::Options options = make_();
    options.schedule = {.wait = 0,
                        .warmup = kWarmupSteps,
                        .active = kStepsBefore + 1 + kStepsAfter,
                        .repeat = 1};
    options.first_step = next;
    // If another Profile is recording, this stall is not recorded.
    auto made = Session::Make(std::move(options));
    if (made.ok()) session_ = *std::move(made);
    if (session_ == nullptr) Release();
    return nullptr;
  }
  std::unique_ptr<ClosedWindow> window = session_->Step();
  if (session_->done()) session_.reset();
  return window;
}

void StallRecorder::Plan(const WholeRun& run, int64_t next) {
  if (busy_.load(std::memory_order_acquire)) {
    // The training thread may have passed the chosen step before it saw the
    // plan.
    const int64_t begin = begin_.load(std::memory_order_relaxed);
    if (begin < 0 || begin >= next) return;
    begin_.store(-1, std::memory_order_relaxed);
    Release();
  }
  for (const RunStall& stall : run.stalls) {
    // Only a stall with a period can be predicted.
    if (!HasPeriod(stall) || stall.frac < kMinFrac) continue;
    const auto period = static_cast<int64_t>(std::llround(stall.period_steps));
    const int64_t phase = stall.last_step % period;
    auto kind = std::ranges::find_if(kinds_, [&](const Kind& known) {
      return known.period == period && known.phase == phase;
    });
    if (kind == kinds_.end()) {
      kind = kinds_.insert(kind, {.period = period, .phase = phase});
    }
    if (!kind->cause.empty() || kind->tries == kMostTries) continue;
    ++kind->tries;
    const int64_t ahead =
        kWarmupSteps + kStepsBefore + 1 +
        static_cast<int64_t>(kPlanAheadMs / std::max(run.median_ms, 1e-3));
    target_ = stall.last_step;
    while (target_ < next + ahead) target_ += period;
    busy_.store(true, std::memory_order_relaxed);
    begin_.store(target_ - kWarmupSteps - kStepsBefore,
                 std::memory_order_release);
    return;
  }
}

void StallRecorder::Take(const Trace& trace, const Report& report) {
  const std::string cause = SlowStepInWords(trace, report, target_);
  for (Kind& kind : kinds_) {
    if (target_ % kind.period != kind.phase || !kind.cause.empty()) continue;
    kind.step = target_;
    kind.cause = cause;
  }
}

void StallRecorder::Explain(WholeRun& run) const {
  for (RunStall& stall : run.stalls) {
    if (!HasPeriod(stall)) continue;
    for (const Kind& kind : kinds_) {
      if (kind.cause.empty() ||
          kind.period != std::llround(stall.period_steps) ||
          kind.phase != stall.last_step % kind.period) {
        continue;
      }
      stall.cause = kind.cause;
      stall.cause_step = kind.step;
    }
  }
}

}  // namespace stepscope
