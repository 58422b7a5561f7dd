// Schedule: which steps of a loop are only timed, which warm up the profiler,
// and which are recorded. The numbers mean the same as in
// torch.profiler.schedule.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>

namespace stepscope {

// A value for Schedule::active: record until the loop ends.
inline constexpr int64_t kWholeLoop = 1'000'000'000;

// After `skip_first` steps, cycles of wait + warmup + active steps follow:
// `repeat` cycles or, if that is 0, as many as the loop has time for. Default:
// 3 steps wait, 3 warm up, 3 are recorded, once.
struct Schedule {
  int64_t skip_first = 0;
  int64_t wait = 3;    // collectors off; the steps are timed
  int64_t warmup = 3;  // collectors on; what they record is discarded
  int64_t active = 3;  // recorded; kWholeLoop: all that follow
  int64_t repeat = 1;
};

// Returns InvalidArgument if a number is out of range or nothing would be
// recorded. The message names the number and a value that works.
absl::Status CheckSchedule(const Schedule& schedule);

enum class SchedulePhase : uint8_t { kWait, kWarmup, kActive, kDone };

// The place of a step in the schedule.
struct SchedulePlace {
  SchedulePhase phase = SchedulePhase::kWait;  // also of skipped steps
  int64_t cycle = 0;  // from 0; after the last one: the number of cycles
  int64_t index = 0;  // of the step in its phase, from 0
  bool operator==(const SchedulePlace&) const = default;
};

// Returns the place of a step. REQUIRES: CheckSchedule() passed, step >= 0.
SchedulePlace PlaceOf(const Schedule& schedule, int64_t step);

// The number of steps until the first window has closed, and until the last one
// has closed (-1 if the schedule repeats without end).
int64_t StepsOfFirstCycle(const Schedule& schedule);
int64_t StepsOfAllCycles(const Schedule& schedule);

// Describes the plan. `first_step` is the number of the loop's first step:
// "steps 0-2 wait (timed, nothing recorded), 3-5 warm-up, 6-8 recorded; then
// off".
std::string PlanText(const Schedule& schedule, int64_t first_step = 0);

// A sentence for a loop that ended after `steps` steps: what it was too short
// to record, and what to do. Empty if every cycle was complete.
std::string MissedText(const Schedule& schedule, int64_t steps);

}  // namespace stepscope
