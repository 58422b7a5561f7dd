// RunTimes: how long every step of a run took, from one Step() call to the
// next. A recording shows a few steps with causes; this shows all steps without
// causes.
#pragma once

#include <cstdint>
#include <vector>

namespace stepscope {

// A step that took at least 1.2 times the usual one.
struct SlowStep {
  int64_t number = 0;    // counted by the loop, from 0
  int64_t begin_ns = 0;  // since RunTimes::begin_ns
  int64_t ns = 0;
  int64_t usual_ns = 0;  // the median of the steps around it
};

// Steps [first, end) by number.
struct StepNumbers {
  int64_t first = 0;
  int64_t end = 0;
};

struct RunTimes {
  int64_t first_step = 0;  // its number
  int64_t begin_ns = 0;    // since the epoch: when the first step ended
  int64_t steps = 0;       // that ended, recorded or not
  // The number of steps with every collector off, without the first step, which
  // also contains the time before the loop. The figures below are about these
  // timed steps, except `all_ns`.
  int64_t timed = 0;
  int64_t all_ns = 0;  // sum over all steps except the first one
  int64_t p5_ns = 0;
  int64_t median_ns = 0;
  int64_t p95_ns = 0;
  int64_t max_ns = 0;
  int64_t max_step = -1;
  // Robust standard deviation of the faster half, so that stalls do not count.
  int64_t noise_ns = 0;
  std::vector<SlowStep> slow;         // by number
  std::vector<StepNumbers> recorded;  // not timed, because collectors were on
  int64_t dropped = 0;  // slow steps left out of `slow`, the least slow ones

  int64_t end_step() const { return first_step + steps; }
};

}  // namespace stepscope
