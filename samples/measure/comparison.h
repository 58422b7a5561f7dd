// Compare: two settings of a program, run in turn, so that a drift of the
// machine hits both alike.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <vector>

#include "run_times.h"
#include "settings.h"
#include "statistics.h"
#include "workload.h"

namespace measure {

enum class Outcome { kFaster, kSlower, kUnclear };

struct Comparison {
  // Of each pair, in the order measured.
  std::vector<RunTimes> before, after;
  int period = 1;  // see RunTimes::MedianMs

  // Medians over the pairs.
  double before_ms() const;  // per step
  double after_ms() const;
  double before_samples_per_s() const;
  double after_samples_per_s() const;

  // Time per sample after / before: the median over the pairs, and where it
  // likely lies. Below 1 is faster.
  double ratio() const;
  Interval interval() const;
  // The step after, as that interval of the ratio leaves it.
  Interval after_interval_ms() const;
  Outcome outcome() const;
  // What brings nothing is not worth a flag: true if the change is the faster
  // of the two, whether or not beyond doubt.
  bool ToBeKept() const { return ratio() < 1; }
};

// Runs some settings once; `pair` counts from 0.
using RunOnce =
    std::function<absl::StatusOr<RunTimes>(const Settings&, int pair)>;

// `pairs` times both, the one first that was last in the pair before. What they
// do repeats after `period` steps.
// Errors: the first of `run`.
absl::StatusOr<Comparison> Compare(const RunOnce& run, const Settings& before,
                                   const Settings& after, int pairs,
                                   int period);

// The steps after which what `settings` do repeats: the least common multiple
// of the flags that do something every N steps, of the workers (whose batches
// come as many at once) and, on a GPU, of the steps from one reading of the
// loss to the next, where the host waits for the device.
int PeriodOf(const Settings& settings);

// `length`, or so much longer that whole periods are timed.
Length WholePeriods(Length length, int period);

}  // namespace measure
