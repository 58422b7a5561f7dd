// StepTimer: keeps how long each step of a run took, in bounded memory. Adding
// a step costs one read of the clock and one store.
//
// Up to kBlock steps are kept one by one. A full block is reduced to its slow
// steps and a histogram, so that a run of any length takes at most 2 MB;
// one of 500 steps touches 70 KB of it. One thread at a time.
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

  // The current step ended at `now`; `off`: every collector was off during it.
  // Returns its length in ticks.
  Ticks Add(Ticks now, bool off) noexcept {
    // Counters of two cores may differ by a few ticks.
    const Ticks length = now > last_ ? now - last_ : 0;
    last_ = last_ + length;
    if (used_ == kBlock) Fold();
    // The sign tells steps apart that were not timed.
    block_[used_++] =
        off ? static_cast<float>(length) : -static_cast<float>(length) - 1.0F;
    return length;
  }

  // The current step begins at `now`: what was switched since the last one
  // ended belongs to no step.
  void Restart(Ticks now) noexcept {
    if (now > last_) last_ = now;
  }

  int64_t steps() const { return before_ + static_cast<int64_t>(used_); }
  // The number of the current step.
  int64_t next_step() const { return first_step_ + steps(); }

  // The run so far. Takes 0.1 ms, or up to 10 ms with tens of thousands of slow
  // steps.
  RunTimes Times() const;

 private:
  struct Sums;

  void Fold() noexcept;
  // Adds the steps of the current block; needs no memory.
  void AddBlock(Sums& sums) const noexcept;
  void AddStep(size_t i, float usual, Sums& sums) const noexcept;

  const int64_t first_step_;
  ClockReading begin_;
  Ticks last_ = 0;
  size_t used_ = 0;
  std::unique_ptr<float[]> block_;
  std::unique_ptr<Sums> folded_;  // what is left of the blocks before
  int64_t before_ = 0;            // steps in those
};

}  // namespace stepscope
