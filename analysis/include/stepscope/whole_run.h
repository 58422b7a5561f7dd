// WholeRun: what the times of all steps of a run show, most of which no window
// recorded: how long a step takes with every collector off, and which stalls
// recur.
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
  // kEvery: every `period_steps`th step. kSteps, kSeconds: the standard
  // deviation of the distances in steps, or in seconds, is less than half of
  // their mean. kIrregular: the stalls have no rhythm.
  enum class Rhythm : uint8_t { kEvery, kSteps, kSeconds, kIrregular };
  Rhythm rhythm = Rhythm::kIrregular;
  double period_steps = 0;  // mean distance between neighbouring stalls
  double period_s = 0;
  double extra_ms = 0;  // time beyond the usual step, median over the stalls
  double frac = 0;      // share of the time of all steps
  // What a recorded step of this kind did, in words; "" if none was recorded.
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

// Sorts the slow steps of a run into kinds. First it takes out series at an
// exact distance: at least three steps with similar excess time that chance
// would line up in fewer than one run in a hundred. It groups the rest by size;
// a group recurs if it has at least five steps and its distances vary by less
// than half of their mean. Never fails.
WholeRun AnalyzeRun(const RunTimes& times);

}  // namespace stepscope
