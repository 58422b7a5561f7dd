// StepTimer: keeps how long each step of a run took, in bounded memory. Adding
// a step costs one read of the clock and one store.
//
// Up to kBlock steps are kept one by one. A full block is reduced to its slow
// steps and a histogram. A run of any length therefore takes at most 2 MB; a
// run of 500 steps touches 70 KB of it. One thread at a time.
#pragma once

#include <stepscope/clock.h>
#include <stepscope/run_times.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stepscope {

class StepTimer {
 public:
  static constexpr size_t kBlock = size_t{1} << 13;
  static constexpr size_t kMostSlow = size_t{1} << 16;

  // Step number `first_step` begins now.
  explicit StepTimer(int64_t first_step = 0);
  ~StepTimer();
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  // The current step ended at `now`. `off`: every collector was off during the
  // step. Returns the step's length in ticks.
  Ticks Add(Ticks now, bool off) noexcept {
    // Counters of two cores may differ by a few ticks.
    const Ticks length = now > last_ ? now - last_ : 0;
    last_ = last_ + length;
    if (used_ == kBlock) Fold();
    // The sign marks steps that were not timed.
    block_[used_++] =
        off ? static_cast<float>(length) : -static_cast<float>(length) - 1.0F;
    return length;
  }

  // The current step begins at `now`. The time since the end of the last step
  // belongs to no step, because something was switched in it.
  void Restart(Ticks now) noexcept {
    if (now > last_) last_ = now;
  }

  int64_t steps() const { return before_ + static_cast<int64_t>(used_); }
  // The number of the current step.
  int64_t next_step() const { return first_step_ + steps(); }

  // Returns the run so far. Takes 0.1 ms, or up to 10 ms with tens of thousands
  // of slow steps.
  RunTimes Times() const;

 private:
  struct Sums;

  void Fold() noexcept;
  // Adds the steps of the current block to `sums`. Needs no memory.
  void AddBlock(Sums& sums) const noexcept;
  void AddStep(size_t i, float usual, Sums& sums) const noexcept;

  const int64_t first_step_;
  ClockReading begin_;
  Ticks last_ = 0;
  size_t used_ = 0;
  std::unique_ptr<float[]> block_;
  std::unique_ptr<Sums> folded_;  // the earlier blocks, reduced
  int64_t before_ = 0;            // steps in the earlier blocks
};

}  // namespace stepscope
