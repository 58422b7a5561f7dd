#include "measure/remedies.h"

#include <gtest/gtest.h>

namespace measure {
namespace {

Settings Of(const char* text) { return *Settings::Parse(text); }

Settings After(AdvisedChange change, const char* settings, int cores = 2) {
  Advice advice;
  advice.usable_cores = cores;
  return Follow(change, advice, Of(settings));
}

AdvisedChange Sets(const char* name, const char* value) {
  return {.id = "x", .settings = {{name, value}}};
}

TEST(FollowTest, WhatTheReportSetsIsSet) {
  EXPECT_EQ(After({.id = "x",
                   .settings = {{"workers", "2"}, {"intra_op_threads", "1"}}},
                  "--threads 2"),
            Of("--workers 2 --threads 1"));
  EXPECT_EQ(After(Sets("batch_size", "128"), ""), Of("--batch 128"));
  EXPECT_EQ(After(Sets("batch_factor", "2"), ""), Of("--batch 64"));
  EXPECT_EQ(After(Sets("batch_factor", "1.5"), "--batch 16"), Of("--batch 24"));
  EXPECT_EQ(After(Sets("memory_format", "channels_last"), ""),
            Of("--channels-last"));
  EXPECT_EQ(After(Sets("optimizer_step", "foreach"), ""), Of("--sgd foreach"));
  EXPECT_EQ(After(Sets("set_to_none", "true"), "--set-to-none 0"),
            Of("--set-to-none 1"));
  EXPECT_EQ(After(Sets("conv_bias", "false"), "--conv-bias"), Settings());
  EXPECT_EQ(After(Sets("anomaly_mode", "false"), "--anomaly-mode"), Settings());
}

TEST(FollowTest, WhatNoFlagKnowsChangesNothing) {
  EXPECT_EQ(After(Sets("phase_of_moon", "1"), "--a"), Of("--a"));
  EXPECT_EQ(After(Sets("compiled", "true"), "--a"), Of("--a"));
  EXPECT_EQ(After(Sets("memory_format", "contiguous"), "--a"), Of("--a"));
  EXPECT_EQ(After({.id = "no-such-finding"}, "--a"), Of("--a"));
}

TEST(FollowTest, AllNamesOfAPlanAreSetTogether) {
  EXPECT_EQ(FollowNames({{"workers", "1"}, {"batch_factor", "4"}},
                        Of("--batch 16 --bf16")),
            Of("--batch 64 --bf16 --workers 1"));
}

TEST(SpelledTest, SettingsThatDoTheSameAreEqual) {
  EXPECT_EQ(Spelled(Of("--workers 0 --batch 32")), Spelled(Settings()));
  EXPECT_NE(Spelled(Of("--workers 1")), Spelled(Settings()));
}

TEST(FollowTest, WithoutNumbersTheLeastThatAFindingMeansIsDone) {
  EXPECT_EQ(After({.id = "sync-data-loading"}, ""), Of("--workers 1"));
  EXPECT_EQ(After({.id = "loader-bound"}, "--workers 2"), Of("--workers 3"));
  EXPECT_EQ(After({.id = "loader-bound",
                   .evidence = "5 steps of 5 begin to validate with no batch "
                               "ready, which costs 37 ms"},
                  "--workers 2"),
            Of("--workers 2"));
  EXPECT_EQ(After({.id = "cores-idle"}, "--workers 1", 4),
            Of("--workers 1 --threads 3"));
  EXPECT_EQ(After({.id = "cores-idle"}, "--workers 1", 2), Of("--workers 1"));
  EXPECT_EQ(After({.id = "cpu-oversubscription"}, "--threads 2 --workers 1"),
            Of("--threads 2 --workers 1"));
  EXPECT_EQ(After({.id = "cpu-oversubscription",
                   .settings = {{"intra_op_threads", "1"}}},
                  "--threads 2 --workers 1"),
            Of("--threads 1 --workers 1"));
  EXPECT_EQ(After({.id = "small-batch"}, "--batch 16"), Of("--batch 32"));
}

TEST(FollowTest, ADefaultThatDoesItAlreadyIsNoChange) {
  EXPECT_EQ(After({.id = "zero-grad-kernels"}, ""), Settings());
  EXPECT_EQ(After({.id = "zero-grad-kernels"}, "--set-to-none 0"), Settings());
  EXPECT_EQ(After({.id = "unfused-optimizer"}, ""), Of("--sgd fused"));
  EXPECT_EQ(After({.id = "unfused-optimizer"}, "--sgd fused"),
            Of("--sgd fused"));
}

TEST(FollowTest, OneHabitGoesAtATime) {
  const char* both = "--item-every-step --print-tensor";
  EXPECT_EQ(After({.id = "host-sync"}, both), Of("--print-tensor"));
  EXPECT_EQ(After({.id = "host-sync", .evidence = "while printing"}, both),
            Of("--item-every-step"));
  EXPECT_EQ(After({.id = "host-sync"}, "--item-every-step"), Settings());
}

TEST(FollowTest, ClippingStaysWithoutItsSync) {
  EXPECT_EQ(After({.id = "grad-clip-sync"}, "--clip-sync"), Of("--clip"));
}

TEST(HabitTest, ComesAndGoesWithoutATrace) {
  const Settings start = Of("--side 32");
  for (const Habit& habit : AllHabits()) {
    const Settings with = WithHabit(habit, start);
    EXPECT_TRUE(HasHabit(habit, with)) << habit.name;
    EXPECT_FALSE(HasHabit(habit, start)) << habit.name;
    const Settings without = WithoutHabit(habit, with);
    EXPECT_FALSE(HasHabit(habit, without)) << habit.name;
    EXPECT_EQ(without, start.With(habit.with).With(habit.off)) << habit.name;
    EXPECT_EQ(WithHabit(habit, without), with) << habit.name;
  }
}

}  // namespace
}  // namespace measure
