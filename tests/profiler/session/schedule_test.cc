#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/schedule.h>

#include <string>
#include <vector>

namespace stepscope::schedule_test {
namespace {

using ::testing::HasSubstr;

// A slow, simple model: writes out the whole loop step by step.
std::vector<SchedulePlace> WriteOut(const Schedule& schedule, int64_t steps) {
  std::vector<SchedulePlace> places;
  int64_t waited = 0;
  for (; waited < schedule.skip_first; ++waited) {
    places.push_back({SchedulePhase::kWait, 0, waited});
  }
  int64_t cycle = 0;
  while (static_cast<int64_t>(places.size()) < steps) {
    if (schedule.repeat > 0 && cycle == schedule.repeat) break;
    for (int64_t i = 0; i < schedule.wait; ++i) {
      places.push_back({SchedulePhase::kWait, cycle, waited++});
    }
    for (int64_t i = 0; i < schedule.warmup; ++i) {
      places.push_back({SchedulePhase::kWarmup, cycle, i});
    }
    for (int64_t i = 0; i < schedule.active; ++i) {
      places.push_back({SchedulePhase::kActive, cycle, i});
    }
    ++cycle;
    waited = 0;
  }
  for (int64_t i = 0; static_cast<int64_t>(places.size()) < steps; ++i) {
    places.push_back({SchedulePhase::kDone, schedule.repeat, i});
  }
  places.resize(steps);
  return places;
}

std::string Describe(const Schedule& s) {
  return "skip " + std::to_string(s.skip_first) + " wait " +
         std::to_string(s.wait) + " warmup " + std::to_string(s.warmup) +
         " active " + std::to_string(s.active) + " repeat " +
         std::to_string(s.repeat);
}

template <typename Check>
void ForEachSmallSchedule(Check check) {
  for (int64_t skip : {0, 1, 4}) {
    for (int64_t wait : {0, 1, 3}) {
      for (int64_t warmup : {0, 1, 3}) {
        for (int64_t active : {1, 2, 3}) {
          for (int64_t repeat : {0, 1, 2, 5}) {
            const Schedule schedule{skip, wait, warmup, active, repeat};
            SCOPED_TRACE(Describe(schedule));
            check(schedule);
          }
        }
      }
    }
  }
}

TEST(ScheduleTest, PlacesEveryStepWhereThePlainModelDoes) {
  ForEachSmallSchedule([](const Schedule& schedule) {
    const std::vector<SchedulePlace> model = WriteOut(schedule, 80);
    for (int64_t step = 0; step < 80; ++step) {
      ASSERT_EQ(PlaceOf(schedule, step), model[step]) << "step " << step;
    }
  });
}

TEST(ScheduleTest, CountsTheStepsOfTheFirstAndOfAllCycles) {
  ForEachSmallSchedule([](const Schedule& schedule) {
    const int64_t first = StepsOfFirstCycle(schedule);
    EXPECT_EQ(PlaceOf(schedule, first - 1).phase, SchedulePhase::kActive);
    EXPECT_EQ(PlaceOf(schedule, first - 1).cycle, 0);
    const SchedulePlace after = PlaceOf(schedule, first);
    EXPECT_TRUE(after.cycle == 1 || after.phase == SchedulePhase::kDone);
    const int64_t all = StepsOfAllCycles(schedule);
    if (schedule.repeat == 0) {
      EXPECT_EQ(all, -1);
    } else {
      EXPECT_EQ(PlaceOf(schedule, all - 1).phase, SchedulePhase::kActive);
      EXPECT_EQ(PlaceOf(schedule, all).phase, SchedulePhase::kDone);
    }
  });
}

TEST(ScheduleTest, MissesNothingExactlyWhenTheScheduleRanOut) {
  ForEachSmallSchedule([](const Schedule& schedule) {
    for (int64_t steps = 0; steps < 40; ++steps) {
      if (schedule.repeat == 0) continue;
      EXPECT_EQ(MissedText(schedule, steps).empty(),
                steps >= StepsOfAllCycles(schedule))
          << steps << " steps: " << MissedText(schedule, steps);
    }
  });
}

TEST(ScheduleTest, WritesThePlanInSteps) {
  EXPECT_EQ(PlanText({}),
            "steps 0-2 wait (timed, nothing recorded), 3-5 warm-up, 6-8 "
            "recorded; then off");
  EXPECT_EQ(PlanText({.wait = 0, .warmup = 0, .active = 1}),
            "step 0 recorded; then off");
  EXPECT_EQ(PlanText({.skip_first = 10, .wait = 1, .warmup = 1, .active = 2}),
            "steps 0-9 skipped, 10 wait (timed, nothing recorded), 11 warm-up, "
            "12-13 recorded; then off");
  EXPECT_EQ(PlanText({.repeat = 3}),
            "steps 0-2 wait (timed, nothing recorded), 3-5 warm-up, 6-8 "
            "recorded; again from step 9, 3 times in all (last recorded step "
            "26); then off");
  EXPECT_EQ(PlanText({.repeat = 0}),
            "steps 0-2 wait (timed, nothing recorded), 3-5 warm-up, 6-8 "
            "recorded; again from step 9, for as long as the loop runs");
  EXPECT_EQ(PlanText({.wait = 0, .warmup = 2, .repeat = 2}, 1000),
            "steps 1000-1001 warm-up, 1002-1004 recorded; again from step "
            "1005, 2 times in all (last recorded step 1009); then off");
}

TEST(ScheduleTest, TellsAShortLoopWhatItMissed) {
  EXPECT_THAT(MissedText({}, 0), HasSubstr("before the first Step()"));
  EXPECT_EQ(MissedText({}, 5),
            "loop ended in warm-up after 5 steps, nothing recorded: needs 9 "
            "steps; call Step() (prof.step() in Python) at the end of each "
            "iteration, or shorten the schedule");
  EXPECT_THAT(MissedText({}, 3), HasSubstr("in the wait steps after 3 steps"));
  EXPECT_THAT(MissedText({}, 6), HasSubstr("in warm-up after 6 steps"));
  EXPECT_EQ(MissedText({}, 8),
            "loop ended in the recorded steps after 8 steps, 2 of 3 steps "
            "recorded: a whole window needs a loop of 9 steps");
  EXPECT_EQ(MissedText({.repeat = 3}, 20),
            "loop ended in the wait steps after 20 steps, 2 of 3 windows "
            "recorded: all need 27 steps");
}

TEST(ScheduleTest, AnEndlessScheduleMissesNothingBetweenItsWindows) {
  const Schedule endless{.repeat = 0};
  EXPECT_THAT(MissedText(endless, 8), HasSubstr("2 of 3 steps"));
  EXPECT_EQ(MissedText(endless, 9), "");
  EXPECT_EQ(MissedText(endless, 13), "");
  EXPECT_EQ(MissedText(endless, 15), "");
  EXPECT_THAT(MissedText(endless, 16), HasSubstr("1 of 3 steps"));
}

TEST(ScheduleTest, RefusesASchedulethatRecordsNothing) {
  const absl::Status zero = CheckSchedule({.active = 0});
  EXPECT_TRUE(absl::IsInvalidArgument(zero));
  EXPECT_THAT(std::string(zero.message()),
              HasSubstr("active is 0, so no step would be recorded; use at "
                        "least 1"));
  const absl::Status negative = CheckSchedule({.warmup = -1});
  EXPECT_TRUE(absl::IsInvalidArgument(negative));
  EXPECT_THAT(std::string(negative.message()), HasSubstr("warmup is -1"));
  EXPECT_FALSE(CheckSchedule({.active = INT64_MAX}).ok());
  EXPECT_FALSE(CheckSchedule({.repeat = INT64_MAX}).ok());
  EXPECT_TRUE(CheckSchedule({}).ok());
  EXPECT_TRUE(CheckSchedule({0, 0, 0, 1, 0}).ok());
}

TEST(ScheduleTest, TheLargestScheduleDoesNotOverflow) {
  const Schedule largest{1'000'000'000, 1'000'000'000, 1'000'000'000,
                         1'000'000'000, 1'000'000'000};
  ASSERT_TRUE(CheckSchedule(largest).ok());
  const int64_t all = StepsOfAllCycles(largest);
  EXPECT_EQ(PlaceOf(largest, all - 1).phase, SchedulePhase::kActive);
  EXPECT_EQ(PlaceOf(largest, all - 1).cycle, 999'999'999);
  EXPECT_EQ(PlaceOf(largest, all).phase, SchedulePhase::kDone);
}

}  // namespace
}  // namespace stepscope::schedule_test
