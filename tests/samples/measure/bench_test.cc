#include "measure/bench.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "samples/temporary_folder.h"

namespace measure {
namespace {

Settings Of(const char* text) { return *Settings::Parse(text); }

class BenchTest : public ::testing::Test {
 protected:
  Bench Open(const char* always = "",
             std::chrono::seconds limit = std::chrono::hours(1)) {
    return *Bench::Open(*Workload::Find(FAKE_TRAINING, Of(always)),
                        {.folder = folder_.path() + "/deep/work",
                         .limit = limit,
                         .window = {},
                         .say = [this](const std::string&) { ++runs_; }});
  }

  resnet::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(BenchTest, ARunIsMeasuredOnceForEachPurposeNumberAndLength) {
  Bench bench = Open();
  const Length shorter{.steps = 8};
  ASSERT_TRUE(bench.Time({}, shorter, "a", 0).ok());
  ASSERT_TRUE(bench.Time({}, shorter, "a", 0).ok());
  EXPECT_EQ(runs_, 1);
  ASSERT_TRUE(bench.Time({}, shorter, "a", 1).ok());
  ASSERT_TRUE(bench.Time({}, shorter, "b", 0).ok());
  ASSERT_TRUE(bench.Time({}, {.steps = 9}, "a", 0).ok());
  ASSERT_TRUE(bench.Time(Of("--batch 8"), shorter, "a", 0).ok());
  EXPECT_EQ(runs_, 5);
}

TEST_F(BenchTest, AnotherProgramGoesOnWhereOneStopped) {
  ASSERT_TRUE(Open().Time({}, {.steps = 8}, "a", 0).ok());
  Bench late = Open("", std::chrono::seconds(0));
  EXPECT_TRUE(late.Time({}, {.steps = 8}, "a", 0).ok());
  EXPECT_EQ(late.Time({}, {.steps = 8}, "a", 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(late.Profile({}, "p").status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(runs_, 1);
}

TEST_F(BenchTest, WhatEveryRunGetsTellsRunsApart) {
  ASSERT_TRUE(Open("--side 32").Time({}, {.steps = 8}, "a", 0).ok());
  ASSERT_TRUE(Open("--side 64").Time({}, {.steps = 8}, "a", 0).ok());
  EXPECT_EQ(runs_, 2);
}

TEST_F(BenchTest, AProfileIsTakenAgainForOtherSettingsOfTheSameName) {
  Bench bench = Open();
  ASSERT_TRUE(bench.Profile({}, "p").ok());
  EXPECT_EQ(bench.Profile({}, "p")->step_ms, 116);
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(bench.Profile(Of("--threads 2"), "p")->step_ms, 74);
  EXPECT_EQ(runs_, 2);
}

TEST_F(BenchTest, AProfileIsTakenAgainForMoreSteps) {
  Bench bench = Open();
  ASSERT_TRUE(bench.Profile({}, "p").ok());
  ASSERT_TRUE(bench.Profile({}, "p", 2).ok());
  ASSERT_TRUE(bench.Profile({}, "p", 2).ok());
  EXPECT_EQ(runs_, 2);
}

TEST_F(BenchTest, ComparesWholePeriods) {
  Bench bench = Open("--device cuda");
  const absl::StatusOr<Comparison> comparison =
      bench.Compare(Of("--workers 2"), {}, 2, "a", {.steps = 12});
  ASSERT_TRUE(comparison.ok()) << comparison.status().message();
  EXPECT_EQ(comparison->period, 10);
  EXPECT_EQ(comparison->before[0].step_ms.size(), 4u + 10);
}

// Both sides of a pair run in turn, also where another climb met one of them.
TEST_F(BenchTest, BesideAnotherPartnerARunIsMeasuredAgain) {
  Bench bench = Open();
  ASSERT_TRUE(bench.Compare({}, Of("--workers 1"), 2, "a", {}).ok());
  EXPECT_EQ(runs_, 4);
  ASSERT_TRUE(bench.Compare({}, Of("--workers 2"), 2, "a", {}).ok());
  EXPECT_EQ(runs_, 8);
  ASSERT_TRUE(bench.Compare({}, Of("--workers 2"), 2, "a", {}).ok());
  EXPECT_EQ(runs_, 8);
}

TEST_F(BenchTest, AFolderThatCannotBeMadeIsSaid) {
  std::ofstream(folder_.path() + "/file") << "x";
  absl::StatusOr<Bench> bench = Bench::Open(
      *Workload::Find(FAKE_TRAINING, {}),
      {.folder = folder_.path() + "/file/work", .window = {}, .say = nullptr});
  EXPECT_EQ(bench.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace measure
