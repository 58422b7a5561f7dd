#include "climb/habits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_bench.h"

namespace climb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const measure::Length kShort{.steps = 12, .warm_steps = 2};

measure::RunTimes Steady(double ms) { return {{ms, ms, ms}, 0, 32}; }

HabitCost Costing(const char* name, double ms, int removed_at) {
  HabitCost habit{.name = name, .cost = {}, .removed_at = removed_at};
  for (double noise : {-1.0, 0.0, 1.0}) {
    habit.cost.before.push_back(Steady(100));
    habit.cost.after.push_back(Steady(100 + ms + noise));
  }
  return habit;
}

// fake_training.cc: printing 8 ms, reading the loss 5 ms, anomaly mode nothing.
TEST(MeasureHabitsTest, GivesEachItsPrice) {
  FakeBench fake;
  absl::StatusOr<std::vector<HabitCost>> habits = MeasureHabits(
      fake.bench(), Of("--print-tensor --item-every-step --anomaly-mode"), 3,
      kShort);
  ASSERT_TRUE(habits.ok()) << habits.status().message();
  ASSERT_EQ(habits->size(), 3u);
  EXPECT_EQ((*habits)[0].name, "item");
  EXPECT_NEAR((*habits)[0].cost_ms(), 5, 0.01);
  EXPECT_TRUE((*habits)[0].Costs());
  EXPECT_EQ((*habits)[1].name, "print");
  EXPECT_NEAR((*habits)[1].cost_ms(), 8, 0.01);
  EXPECT_EQ((*habits)[2].name, "anomaly");
  EXPECT_FALSE((*habits)[2].Costs());
  EXPECT_EQ(fake.runs(), 3 * (3 + 2));  // all, item, print, all, anomaly
}

TEST(MeasureHabitsTest, TheClimbRemovesThemDearestFirst) {
  FakeBench fake;
  const measure::Settings start = Of("--print-tensor --item-every-step");
  absl::StatusOr<std::vector<HabitCost>> habits =
      MeasureHabits(fake.bench(), start, 3, kShort);
  absl::StatusOr<Ascent> ascent =
      Ascend(fake.bench(), start,
             {.pairs = 3, .profiles = 1, .length = kShort, .tell = nullptr});
  ASSERT_TRUE(ascent.ok()) << ascent.status().message();
  MarkRemoved(*ascent, *habits);
  EXPECT_GE((*habits)[0].removed_at, 0);
  EXPECT_GE((*habits)[1].removed_at, 0);
  EXPECT_LT((*habits)[1].removed_at, (*habits)[0].removed_at);
  EXPECT_THAT(Complaints(*habits), IsEmpty());
}

TEST(MeasureHabitsTest, WhatStaysIsPricedAgainWhereTheClimbEnds) {
  FakeBench fake;
  std::vector<HabitCost> habits = {Costing("item", 30, -1),
                                   Costing("print", 30, 0)};
  ASSERT_TRUE(
      MeasureRemaining(fake.bench(), Of("--item-every-step"), 3, kShort, habits)
          .ok());
  ASSERT_TRUE(habits[0].at_end.has_value());
  EXPECT_NEAR(habits[0].end_cost_ms(), 5, 0.01);
  EXPECT_TRUE(habits[0].CostsAtEnd());
  EXPECT_FALSE(habits[1].at_end.has_value());
}

TEST(MeasureHabitsTest, WithoutHabitsNothingRuns) {
  FakeBench fake;
  std::vector<HabitCost> habits = {Costing("item", 30, 0)};
  ASSERT_TRUE(
      MeasureRemaining(fake.bench(), Of("--workers 1"), 3, kShort, habits)
          .ok());
  EXPECT_EQ(fake.runs(), 0);
}

TEST(ComplaintsTest, AHabitThatStaysAndIsDearAtTheEndIsOne) {
  HabitCost item = Costing("item", 30, -1);
  item.at_end = Costing("item", 20, -1).cost;
  EXPECT_THAT(Complaints({item}),
              ElementsAre(HasSubstr("item stays, and costs more")));
  item.at_end = Costing("item", 0, -1).cost;
  EXPECT_THAT(Complaints({item}), IsEmpty());
}

TEST(ComplaintsTest, ACheapHabitThatGoesBeforeADearOneIsOne) {
  EXPECT_THAT(Complaints({Costing("item", 10, 0), Costing("print", 30, 1)}),
              ElementsAre(HasSubstr("item goes before print")));
  EXPECT_THAT(Complaints({Costing("item", 10, 1), Costing("print", 30, 0)}),
              IsEmpty());
}

TEST(ComplaintsTest, HabitsOfTheSamePriceMayGoInAnyOrder) {
  EXPECT_THAT(Complaints({Costing("item", 29.5, 0), Costing("print", 30, 1)}),
              IsEmpty());
}

}  // namespace
}  // namespace climb
