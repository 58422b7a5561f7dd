// What a climb found, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ascent.h"
#include "habits.h"
#include "measure/comparison.h"
#include "sweep.h"

namespace climb {

struct Result {
  Ascent ascent;
  std::vector<HabitCost> habits;  // empty without --bad-habits
  std::vector<Swept> sweep;       // empty with --no-sweep; the best one first
  // The whole climb: its start and its end, run in turn.
  measure::Comparison whole;
  // The sweep's best (before) and the climb's end (after), run in turn; not
  // there if there was no sweep, or if both are the same settings.
  std::optional<measure::Comparison> against_best;

  double samples_per_s() const;
  double best_samples_per_s() const;  // 0 without a sweep
};

// A paragraph about one step, with its number from 1.
std::string StepText(const Step& step, size_t number);
std::string HabitsText(const std::vector<HabitCost>& habits);
// Everything after the steps.
std::string EndText(const Result& result);

// The schema is samples/climb/README.md.
std::string ToJson(const Result& result);

}  // namespace climb
