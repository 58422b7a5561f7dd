// WholeRun: what the times of all steps say about a run, although no window
// recorded most of them: how long a step takes with every collector off, and
// which stalls recur.
#pragma once

#include <stepscope/run_times.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stepscope {

// Slow steps of one kind: validation, checkpoints, pauses of a garbage
// collector, a loader that delivers in bursts.
struct RunStall {
  int64_t count = 0;  // of steps
  int64_t first_step = -1;
  int64_t last_step = -1;
  // kEvery: every `period_steps`th step. kSteps, kSeconds: the distance in
  // steps, or that in seconds, varies by less than half. kIrregular: it does
  // not recur in any rhythm.
  enum class Rhythm : uint8_t { kEvery, kSteps, kSeconds, kIrregular };
  Rhythm rhythm = Rhythm::kIrregular;
  double period_steps = 0;  // mean distance of two
  double period_s = 0;
  double extra_ms = 0;  // beyond the usual step, median
  double frac = 0;      // of the time of all steps
  // What the one of them that was recorded did, in words; "" if none was.
  std::string cause = {};
  int64_t cause_step = -1;
};

struct WholeRun {
  int64_t steps = 0;   // timed with every collector off; 0: nothing is known
  double seconds = 0;  // of all steps but the first
  double median_ms = 0;
  double p5_ms = 0;
  double p95_ms = 0;
  double max_ms = 0;
  int64_t max_step = -1;
  std::vector<RunStall> stalls = {};  // recurring or not, the largest first
};

// Sorts the slow steps of a run into kinds. First those at an exact distance:
// at least three steps of similar excess, which chance would not line up in one
// run of a hundred. The rest by size; at least five at distances that vary by
// less than half recur. Never fails.
WholeRun AnalyzeRun(const RunTimes& times);

}  // namespace stepscope
