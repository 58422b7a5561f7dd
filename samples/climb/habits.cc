#include "habits.h"

#include <utility>

#include "measure/statistics.h"

namespace climb {

measure::Interval HabitCost::interval_ms() const {
  std::vector<double> costs;
  for (size_t i = 0; i < cost.before.size(); ++i) {
    costs.push_back(cost.after[i].MedianMs(cost.period) -
                    cost.before[i].MedianMs(cost.period));
  }
  return measure::MedianInterval(costs);
}

absl::StatusOr<std::vector<HabitCost>> MeasureHabits(
    measure::Bench& bench, const measure::Settings& start, int rounds,
    measure::Length length) {
  const int period = bench.Period(start);
  length = measure::WholePeriods(length, period);
  std::vector<const measure::Habit*> present;
  std::vector<HabitCost> costs;
  for (const measure::Habit& habit : measure::CpuHabits()) {
    if (!measure::HasHabit(habit, start)) continue;
    present.push_back(&habit);
    costs.push_back({.name = habit.name, .cost = {}});
    costs.back().cost.period = period;
  }
  const size_t count = present.size();
  int runs_with_all = 0;
  for (int round = 0; round < rounds; ++round) {
    absl::StatusOr<measure::RunTimes> all;
    const auto time_all = [&] {
      all = bench.Time(start, length, "all habits", runs_with_all++);
    };
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      if (turn == 0) time_all();
      if (!all.ok()) return all.status();
      absl::StatusOr<measure::RunTimes> without =
          bench.Time(measure::WithoutHabit(*present[i], start), length,
                     "without " + present[i]->name, round);
      if (!without.ok()) return without.status();
      if (turn % 2 == 1) time_all();
      if (!all.ok()) return all.status();
      costs[i].cost.before.push_back(*std::move(without));
      costs[i].cost.after.push_back(*all);
    }
  }
  return costs;
}

void MarkRemoved(const Ascent& ascent, std::vector<HabitCost>& habits) {
  for (const measure::Habit& habit : measure::CpuHabits()) {
    for (HabitCost& cost : habits) {
      if (cost.name != habit.name) continue;
      for (size_t i = 0; i < ascent.steps.size(); ++i) {
        const Step& step = ascent.steps[i];
        if (step.kept && measure::HasHabit(habit, step.before) &&
            !measure::HasHabit(habit, step.after)) {
          cost.removed_at = static_cast<int>(i);
        }
      }
    }
  }
}

absl::Status MeasureRemaining(measure::Bench& bench,
                              const measure::Settings& end, int rounds,
                              measure::Length length,
                              std::vector<HabitCost>& habits) {
  absl::StatusOr<std::vector<HabitCost>> costs =
      MeasureHabits(bench, end, rounds, length);
  if (!costs.ok()) return costs.status();
  for (HabitCost& remaining : *costs) {
    for (HabitCost& habit : habits) {
      if (habit.name == remaining.name) {
        habit.at_end = std::move(remaining.cost);
      }
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> Complaints(const std::vector<HabitCost>& habits) {
  std::vector<std::string> complaints;
  for (const HabitCost& habit : habits) {
    if (habit.CostsAtEnd()) {
      complaints.push_back(habit.name +
                           " stays, and costs more than the noise at the end");
    }
    for (const HabitCost& other : habits) {
      if (habit.removed_at >= 0 && other.removed_at > habit.removed_at &&
          habit.interval_ms().high < other.interval_ms().low) {
        complaints.push_back(habit.name + " goes before " + other.name +
                             ", which costs more");
      }
    }
  }
  return complaints;
}

}  // namespace climb
