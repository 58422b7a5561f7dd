#include "climb/ascent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_bench.h"
#include "measure/remedies.h"

namespace climb {
namespace {

using measure::Settings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const AscentOptions kShort{.pairs = 3,
                           .profiles = 1,
                           .max_changes = 16,
                           .length = {.steps = 12, .warm_steps = 2},
                           .tell = nullptr};

// A finding as the fake writes it; without blanks, as it becomes a flag.
std::string Finding(const char* id, double gain, const char* settings) {
  return std::string(R"({"id":")") + id +
         R"(","severity":"high","gain_is":"predicted","gain_ms_per_step":)" +
         R"({"expected":)" + std::to_string(gain) + R"(},"settings":)" +
         settings + "}";
}

std::vector<std::string> Ids(const Ascent& ascent) {
  std::vector<std::string> ids;
  for (const Step& step : ascent.steps) ids.push_back(step.id);
  return ids;
}

measure::Advice Report(std::vector<std::string> ids) {
  measure::Advice advice;
  advice.step_ms = 100;
  for (const std::string& id : ids) {
    advice.findings.push_back({.id = id,
                               .severity = "high",
                               .gain_is = "predicted",
                               .gain_ms = 10,
                               .settings = {{"workers", "1"}}});
  }
  return advice;
}

TEST(DecideTest, TheMiddleReportCounts) {
  const std::vector<measure::Advice> reports = {
      Report({}), Report({"loader-bound"}), Report({})};
  const Choice choice = Decide(reports, Settings(), {});
  ASSERT_NE(choice.change, nullptr);
  EXPECT_EQ(choice.change->id, "loader-bound");
  EXPECT_EQ(choice.after, Of("--workers 1"));
}

TEST(DecideTest, WhereItIsSilentMostOfThemCount) {
  const std::vector<measure::Advice> one = {Report({"loader-bound"}),
                                            Report({}), Report({})};
  EXPECT_EQ(Decide(one, Settings(), {}).change, nullptr);
  const std::vector<measure::Advice> two = {
      Report({"loader-bound"}), Report({}), Report({"loader-bound"})};
  const Choice choice = Decide(two, Settings(), {});
  ASSERT_NE(choice.change, nullptr);
  EXPECT_EQ(choice.change->id, "loader-bound");
  const std::string tried = measure::Spelled(Of("--workers 1")).Text();
  EXPECT_EQ(Decide(two, Settings(), {tried}).change, nullptr);
}

TEST(AscendTest, FollowsTheReportUntilItHasNothingToSay) {
  FakeBench fake;
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), kShort);
  ASSERT_TRUE(ascent.ok()) << ascent.status().message();
  EXPECT_THAT(Ids(*ascent), ElementsAre("cores-idle", "small-batch"));
  EXPECT_EQ(ascent->end, Of("--threads 2 --batch 64"));
  EXPECT_TRUE(ascent->healthy);
  EXPECT_TRUE(ascent->left.empty());
  EXPECT_TRUE(ascent->Failures().empty());
  for (const Step& step : ascent->steps) {
    EXPECT_TRUE(step.kept);
    EXPECT_NEAR(step.error(), 0, 0.001) << step.id;
    EXPECT_NEAR(step.ratio_error(), 0, 0.001) << step.id;
  }
}

// fake_training.cc: 74 ms for 32 samples become 138 ms for 64.
TEST(AscendTest, ALargerBatchIsPromisedAsItsOwnStep) {
  FakeBench fake;
  absl::StatusOr<Ascent> ascent =
      Ascend(fake.bench(), Of("--threads 2"), kShort);
  ASSERT_EQ(ascent->steps.size(), 1u);
  const Step& step = ascent->steps[0];
  EXPECT_NEAR(step.recorded_ms, 74, 0.01);
  EXPECT_NEAR(step.predicted_ms, 138, 0.01);
  EXPECT_NEAR(step.measured.after_ms(), 138, 0.01);
  EXPECT_NEAR(step.measured.ratio(), 69.0 / 74, 0.001);
}

TEST(AscendTest, AFixThatMakesItSlowerIsTakenBackAndCountsAgainstItsRule) {
  Settings always;
  always.Set("--advise",
             Finding("layout", 30, R"({"memory_format":"channels_last"})"));
  FakeBench fake(always);
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), kShort);
  ASSERT_TRUE(ascent.ok()) << ascent.status().message();
  EXPECT_THAT(Ids(*ascent), ElementsAre("layout"));
  EXPECT_FALSE(ascent->steps[0].kept);
  EXPECT_EQ(ascent->end, Settings());
  ASSERT_EQ(ascent->Failures().size(), 1u);
  EXPECT_EQ(ascent->Failures()[0]->id, "layout");
  EXPECT_FALSE(ascent->healthy);
  ASSERT_EQ(ascent->left.size(), 1u);
  EXPECT_THAT(ascent->left[0].why, HasSubstr("tried before"));
  // 86 ms promised of 116; it takes 124.4.
  EXPECT_NEAR(ascent->steps[0].error(), 86 / 124.4 - 1, 0.001);
}

TEST(AscendTest, AFixThatMakesTheProgramFailIsTakenBackToo) {
  Settings always;
  always.Set("--fail-if", "--threads");
  FakeBench fake(always);
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), kShort);
  ASSERT_TRUE(ascent.ok()) << ascent.status().message();
  ASSERT_EQ(Ids(*ascent).front(), "cores-idle");
  EXPECT_THAT(ascent->steps[0].failed, HasSubstr("no such weather"));
  EXPECT_FALSE(ascent->steps[0].kept);
  ASSERT_EQ(ascent->Failures().size(), 1u);
  EXPECT_EQ(ascent->end, Of("--workers 1 --batch 64"));
}

TEST(AscendTest, WhatIsHeldBackIsRecordedAtLength) {
  Settings always;
  always.Set("--hold-back", "15");
  FakeBench fake(always);
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), kShort);
  ASSERT_TRUE(ascent.ok()) << ascent.status().message();
  EXPECT_THAT(Ids(*ascent), ElementsAre("cores-idle", "small-batch"));
  EXPECT_TRUE(ascent->healthy);
}

TEST(AscendTest, WhatStaysHeldBackIsNotCalledHealthy) {
  Settings always;
  always.Set("--hold-back", "1000");
  FakeBench fake(always);
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), kShort);
  ASSERT_TRUE(ascent.ok()) << ascent.status().message();
  EXPECT_TRUE(ascent->steps.empty());
  EXPECT_FALSE(ascent->healthy);
  ASSERT_EQ(ascent->left.size(), 1u);
  EXPECT_EQ(ascent->left[0].id, "cores-idle");
  EXPECT_THAT(ascent->left[0].why, HasSubstr("held back"));
}

TEST(AscendTest, WhatNoFlagDoesIsLeftAndSaid) {
  Settings always;
  always.Set("--advise", Finding("moon-phase", 30, "{}"));
  FakeBench fake(always);
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), kShort);
  EXPECT_TRUE(ascent->steps.empty());
  EXPECT_FALSE(ascent->healthy);
  ASSERT_EQ(ascent->left.size(), 1u);
  EXPECT_EQ(ascent->left[0].id, "moon-phase");
}

TEST(AscendTest, GivesUpAfterEnoughChanges) {
  FakeBench fake;
  AscentOptions few = kShort;
  few.max_changes = 1;
  absl::StatusOr<Ascent> ascent = Ascend(fake.bench(), Settings(), few);
  EXPECT_EQ(ascent->steps.size(), 1u);
  ASSERT_EQ(ascent->left.size(), 1u);
  EXPECT_EQ(ascent->left[0].id, "small-batch");
}

TEST(AscendTest, WhatWasMeasuredIsNotMeasuredAgain) {
  FakeBench fake;
  ASSERT_TRUE(Ascend(fake.bench(), Settings(), kShort).ok());
  const int runs = fake.runs();
  EXPECT_GT(runs, 0);
  ASSERT_TRUE(Ascend(fake.bench(), Settings(), kShort).ok());
  EXPECT_EQ(fake.runs(), runs);
}

TEST(AscendTest, ATimeThatIsOverIsSaid) {
  FakeBench fake({}, std::chrono::seconds(0));
  EXPECT_EQ(Ascend(fake.bench(), Settings(), kShort).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(AscendTest, ARunThatFailsEndsIt) {
  FakeBench fake(Of("--fail"));
  EXPECT_EQ(Ascend(fake.bench(), Settings(), kShort).status().code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace climb
