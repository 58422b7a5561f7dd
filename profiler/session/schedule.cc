#include <stepscope/schedule.h>

#include <array>
#include <utility>

namespace stepscope {
namespace {

// Longer than any loop, and small enough that sums of it do not overflow.
constexpr int64_t kMaxSteps = kWholeLoop;

int64_t CycleSteps(const Schedule& schedule) {
  return schedule.wait + schedule.warmup + schedule.active;
}

std::string Span(int64_t first, int64_t count) {
  std::string text = std::to_string(first);
  if (count > 1) text += "-" + std::to_string(first + count - 1);
  return text;
}

std::string Count(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

const char* PhaseText(SchedulePhase phase) {
  switch (phase) {
    case SchedulePhase::kWait:
      return "the wait steps";
    case SchedulePhase::kWarmup:
      return "warm-up";
    case SchedulePhase::kActive:
      return "the recorded steps";
    case SchedulePhase::kDone:
      return "the end";
  }
  return "";
}

absl::Status Invalid(const std::string& what) {
  return absl::InvalidArgumentError(
      "schedule: " + what +
      "; the default is skip_first 0, wait 3, warmup 3, active 3, repeat 1");
}

}  // namespace

absl::Status CheckSchedule(const Schedule& schedule) {
  const std::array<std::pair<const char*, int64_t>, 5> numbers = {
      {{"skip_first", schedule.skip_first},
       {"wait", schedule.wait},
       {"warmup", schedule.warmup},
       {"active", schedule.active},
       {"repeat", schedule.repeat}}};
  for (const auto& [name, value] : numbers) {
    if (value < 0 || value > kMaxSteps) {
      return Invalid(std::string(name) + " is " + std::to_string(value) +
                     ", but must be between 0 and " +
                     std::to_string(kMaxSteps));
    }
  }
  if (schedule.active == 0) {
    return Invalid("active is 0, so no step would be recorded; use at least 1");
  }
  return absl::OkStatus();
}

// Steps are numbered from 0 over the whole loop. The `skip_first` steps come
// once, before the first cycle, and count as its wait steps.
SchedulePlace PlaceOf(const Schedule& schedule, int64_t step) {
  if (step < schedule.skip_first) return {SchedulePhase::kWait, 0, step};
  step -= schedule.skip_first;
  const int64_t cycle = step / CycleSteps(schedule);
  if (schedule.repeat > 0 && cycle >= schedule.repeat) {
    return {SchedulePhase::kDone, schedule.repeat,
            step - schedule.repeat * CycleSteps(schedule)};
  }
  int64_t index = step % CycleSteps(schedule);
  if (index < schedule.wait) {
    if (cycle == 0) index += schedule.skip_first;
    return {SchedulePhase::kWait, cycle, index};
  }
  index -= schedule.wait;
  if (index < schedule.warmup) return {SchedulePhase::kWarmup, cycle, index};
  return {SchedulePhase::kActive, cycle, index - schedule.warmup};
}

int64_t StepsOfFirstCycle(const Schedule& schedule) {
  return schedule.skip_first + CycleSteps(schedule);
}

int64_t StepsOfAllCycles(const Schedule& schedule) {
  if (schedule.repeat == 0) return -1;
  return schedule.skip_first + schedule.repeat * CycleSteps(schedule);
}

std::string PlanText(const Schedule& schedule, int64_t first_step) {
  std::string text;
  int64_t at = first_step;
  const auto add = [&](int64_t count, const char* what) {
    if (count == 0) return;
    if (text.empty()) {
      text = count > 1 ? "steps " : "step ";
    } else {
      text += ", ";
    }
    text += Span(at, count) + " " + what;
    at += count;
  };
  add(schedule.skip_first, "skipped");
  add(schedule.wait, "wait (timed, nothing recorded)");
  add(schedule.warmup, "warm-up");
  if (schedule.active == kWholeLoop) {
    return text + (text.empty() ? "step " : ", ") + std::to_string(at) +
           " to the end of the loop recorded";
  }
  add(schedule.active, "recorded");
  if (schedule.repeat == 1) return text + "; then off";
  text += "; again from step " + std::to_string(at);
  if (schedule.repeat == 0) return text + ", for as long as the loop runs";
  return text + ", " + std::to_string(schedule.repeat) +
         " times in all (last recorded step " +
         std::to_string(first_step + StepsOfAllCycles(schedule) - 1) +
         "); then off";
}

// Names what a loop that ended after `steps` steps did not record. Shown to
// users who miss a report.
std::string MissedText(const Schedule& schedule, int64_t steps) {
  const SchedulePlace place = PlaceOf(schedule, steps);
  if (place.phase == SchedulePhase::kDone) return "";
  const bool in_window =
      place.phase == SchedulePhase::kActive && place.index > 0;
  if (in_window && schedule.active == kWholeLoop) return "";
  // An endless schedule that ends between two windows misses nothing.
  if (schedule.repeat == 0 && place.cycle > 0 && !in_window) return "";

  // Name the phase of the last step, in which the loop ended.
  const SchedulePhase ended_in =
      steps > 0 ? PlaceOf(schedule, steps - 1).phase : place.phase;
  const std::string loop = steps == 0 ? "loop ended before the first Step()"
                                      : std::string("loop ended in ") +
                                            PhaseText(ended_in) + " after " +
                                            Count(steps, "step");
  if (in_window) {
    const int64_t needed = steps + schedule.active - place.index;
    return loop + ", " + std::to_string(place.index) + " of " +
           Count(schedule.active, "step") +
           " recorded: a whole window needs a loop of " + Count(needed, "step");
  }
  if (place.cycle == 0) {
    return loop + ", nothing recorded: needs " +
           Count(StepsOfFirstCycle(schedule), "step") +
           "; call Step() (prof.step() in Python) at the end of each "
           "iteration, or shorten the schedule";
  }
  return loop + ", " + std::to_string(place.cycle) + " of " +
         Count(schedule.repeat, "window") + " recorded: all need " +
         Count(StepsOfAllCycles(schedule), "step");
}

}  // namespace stepscope
