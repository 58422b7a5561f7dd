// What the bad habits cost, and whether the climb got rid of the dear ones.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <vector>

#include "ascent.h"
#include "measure/bench.h"
#include "measure/comparison.h"
#include "measure/remedies.h"

namespace climb {

struct HabitCost {
  std::string name;
  measure::Comparison cost;  // before: without the habit; after: with it
  int removed_at = -1;       // number of the climb's step, from 0; -1: kept
  // What it costs where the climb ends: some are dear beside others only. Not
  // there if it was removed.
  std::optional<measure::Comparison> at_end = {};

  // Milliseconds per step.
  double cost_ms() const { return cost.after_ms() - cost.before_ms(); }
  measure::Interval interval_ms() const;
  double end_cost_ms() const {
    return at_end ? at_end->after_ms() - at_end->before_ms() : 0;
  }
  // Beyond the noise.
  bool Costs() const { return cost.outcome() == measure::Outcome::kSlower; }
  bool CostsAtEnd() const {
    return at_end && at_end->outcome() == measure::Outcome::kSlower;
  }
};

// What each habit in `start` costs there. In each of the `rounds` every run
// without one of them stands beside a run with all, and the next round goes the
// other way round, so that a drift of the machine hits both alike.
absl::StatusOr<std::vector<HabitCost>> MeasureHabits(
    measure::Bench& bench, const measure::Settings& start, int rounds,
    measure::Length length);

// Fills in removed_at.
void MarkRemoved(const Ascent& ascent, std::vector<HabitCost>& habits);

// Fills in at_end of what `end` still has.
absl::Status MeasureRemaining(measure::Bench& bench,
                              const measure::Settings& end, int rounds,
                              measure::Length length,
                              std::vector<HabitCost>& habits);

// Sentences about what is wrong: a habit that stays and whose cost at the end
// is beyond the noise; one that went before another that surely costs more.
std::vector<std::string> Complaints(const std::vector<HabitCost>& habits);

}  // namespace climb
