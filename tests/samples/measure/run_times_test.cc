#include "measure/run_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RunTimesTest, TheMedianLeavesOutTheWarmSteps) {
  const RunTimes times{{900, 800, 10, 30, 20}, 2, 10};
  EXPECT_EQ(times.MedianMs(), 20);
  EXPECT_EQ(times.SampleMs(), 2);
}

TEST(RunTimesTest, WithoutOtherStepsTheWarmOnesCount) {
  EXPECT_EQ((RunTimes{{30, 10}, 4, 1}.MedianMs()), 10 + 10);
  EXPECT_EQ((RunTimes{{}, 0, 1}.MedianMs()), 0);
}

TEST(RunTimesTest, APeriodSharesOutWhatOneOfItsStepsDoes) {
  const RunTimes times{
      {99, 10, 10, 10, 50, 10, 10, 10, 50, 10, 10, 10, 50, 7}, 1, 1};
  EXPECT_EQ(times.MedianMs(), 10);
  EXPECT_EQ(times.MedianMs(4), 20);
}

TEST(RunTimesTest, AnUnfinishedPeriodIsLeftOutOrStandsAlone) {
  EXPECT_EQ((RunTimes{{10, 20, 90}, 0, 1}.MedianMs(2)), 15);
  EXPECT_EQ((RunTimes{{10, 20}, 0, 1}.MedianMs(4)), 15);
}

TEST(ParseRunTimesTest, ReadsWhatTheSampleWrites) {
  absl::StatusOr<RunTimes> times = ParseRunTimes(
      R"({"step_ms": [1.5, 2], "warm_steps": 1, "batch": 8, "median_ms": 2})",
      "x");
  ASSERT_TRUE(times.ok()) << times.status().message();
  EXPECT_THAT(times->step_ms, ElementsAre(1.5, 2));
  EXPECT_EQ(times->warm_steps, 1);
  EXPECT_EQ(times->batch, 8);
  EXPECT_EQ(ParseRunTimes(ToJson(*times).Text(), "y")->step_ms, times->step_ms);
}

TEST(ParseRunTimesTest, WhatIsNoRunIsRefusedByName) {
  for (const char* json :
       {"", "{", "[]", R"({"step_ms": [], "warm_steps": 0, "batch": 1})",
        R"({"step_ms": [1], "warm_steps": 0})",
        R"({"step_ms": [1], "warm_steps": -1, "batch": 1})",
        R"({"step_ms": [1], "warm_steps": 0, "batch": 0})",
        R"({"step_ms": [0], "warm_steps": 0, "batch": 1})",
        R"({"step_ms": ["a"], "warm_steps": 0, "batch": 1})"}) {
    absl::StatusOr<RunTimes> times = ParseRunTimes(json, "the run");
    EXPECT_EQ(times.status().code(), absl::StatusCode::kDataLoss) << json;
    EXPECT_THAT(std::string(times.status().message()), HasSubstr("the run"));
  }
}

}  // namespace
}  // namespace measure
