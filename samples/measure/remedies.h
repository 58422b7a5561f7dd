// Remedies: which flags of the sample do what a finding advises, and the bad
// habits that the sample can be given.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "advice.h"
#include "settings.h"

namespace measure {

// `settings` as the finding `change` wants them; the same as before if no flag
// of the sample does that, or if what does it is set already. One remedy at a
// time: a finding that several flags cause is followed by taking away the
// first of them.
Settings Follow(const AdvisedChange& change, const Advice& advice,
                const Settings& settings);

// `settings` with what a finding or a plan sets by the report's names; the same
// as before if no flag of the sample is one of them.
Settings FollowNames(const std::map<std::string, std::string>& names,
                     Settings settings);

// `settings` with the value of every flag that the sample would fall back to
// and that climbs change: settings that do the same are equal then.
Settings Spelled(const Settings& settings);

// What some programs do without need, as flags.
struct Habit {
  std::string name;
  Settings on;             // what switches it on
  Settings off;            // what a program that does without it has instead
  Settings with;           // what it needs to show, habit or not
  bool needs_gpu = false;  // its cost shows only there
};

const std::vector<Habit>& AllHabits();
// Those whose cost can show on a CPU.
const std::vector<Habit>& CpuHabits();

bool HasHabit(const Habit& habit, const Settings& settings);
Settings WithHabit(const Habit& habit, const Settings& settings);
Settings WithoutHabit(const Habit& habit, const Settings& settings);

}  // namespace measure
