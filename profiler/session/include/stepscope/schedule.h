// Schedule: which steps of a loop are timed, warmed up and recorded. The
// numbers mean what they mean in torch.profiler.schedule.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <string>

namespace stepscope {

// After `skip_first` steps, cycles of wait + warmup + active steps follow,
// `repeat` of them; 0 repeats for as long as the loop runs. `skip_first` counts
// once, not per cycle.
struct Schedule {
  int64_t skip_first = 0;
  int64_t wait = 3;    // everything off; timed
  int64_t warmup = 3;  // collectors on, what they record is thrown away
  int64_t active = 3;  // recorded
  int64_t repeat = 1;
};

// InvalidArgument if nothing would ever be recorded or a number makes no sense;
// the message says which and what to use instead.
absl::Status CheckSchedule(const Schedule& schedule);

enum class SchedulePhase : uint8_t { kWait, kWarmup, kActive, kDone };

// Where a step lies in the schedule.
struct SchedulePlace {
  SchedulePhase phase = SchedulePhase::kWait;  // skipped steps wait, too
  int64_t cycle = 0;  // from 0; after the last cycle: their number
  int64_t index = 0;  // of the step in its phase, from 0
  bool operator==(const SchedulePlace&) const = default;
};

// REQUIRES: CheckSchedule() passed, step >= 0.
SchedulePlace PlaceOf(const Schedule& schedule, int64_t step);

// Steps until the first window has closed; until the last one has (-1: never).
int64_t StepsOfFirstCycle(const Schedule& schedule);
int64_t StepsOfAllCycles(const Schedule& schedule);

// The plan in steps: "steps 0-2 wait (timed, nothing recorded), 3-5 warm-up,
// 6-8 recorded; then off".
std::string PlanText(const Schedule& schedule);

// What a loop that ended after `steps` steps missed, and what to do; empty if
// it missed nothing.
std::string MissedText(const Schedule& schedule, int64_t steps);

}  // namespace stepscope
