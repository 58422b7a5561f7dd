#include "measure/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace measure {
namespace {

using ::testing::ElementsAre;

Settings Of(const char* text) { return *Settings::Parse(text); }

// Steps of a constant time.
RunTimes Steady(double step_ms, int batch) {
  return {std::vector<double>(8, step_ms), 0, batch};
}

TEST(CompareTest, RunsInTurnAndNeverTheSameSideFirstTwice) {
  std::vector<std::string> order;
  const auto run = [&](const Settings& settings, int pair) {
    order.push_back(settings.Text() + " " + std::to_string(pair));
    return absl::StatusOr<RunTimes>(Steady(10, 1));
  };
  ASSERT_TRUE(Compare(run, Of("--a"), Of("--b"), 3, 1).ok());
  EXPECT_THAT(
      order, ElementsAre("--a 0", "--b 0", "--b 1", "--a 1", "--a 2", "--b 2"));
}

TEST(CompareTest, TheFirstErrorEndsIt) {
  int runs = 0;
  const auto run = [&](const Settings&, int) -> absl::StatusOr<RunTimes> {
    if (++runs == 2) return absl::AbortedError("no");
    return Steady(10, 1);
  };
  EXPECT_EQ(Compare(run, Of("--a"), Of("--b"), 3, 1).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(runs, 2);
}

Comparison Pairs(std::vector<double> before, std::vector<double> after,
                 int batch_after = 10) {
  Comparison comparison;
  for (double ms : before) comparison.before.push_back(Steady(ms, 10));
  for (double ms : after) comparison.after.push_back(Steady(ms, batch_after));
  return comparison;
}

TEST(ComparisonTest, SaysFasterOnlyBeyondTheSpread) {
  EXPECT_EQ(Pairs({10, 11, 10}, {9, 9.5, 8.8}).outcome(), Outcome::kFaster);
  EXPECT_EQ(Pairs({9, 9.5, 8.8}, {10, 11, 10}).outcome(), Outcome::kSlower);
  EXPECT_EQ(Pairs({10, 11, 10}, {9, 12, 9.9}).outcome(), Outcome::kUnclear);
}

TEST(ComparisonTest, OnePairProvesNothing) {
  EXPECT_EQ(Pairs({10}, {1}).outcome(), Outcome::kUnclear);
}

TEST(ComparisonTest, ADriftOfTheMachineHitsBothAlike) {
  const Comparison drift = Pairs({10, 20, 40}, {9, 18, 36});
  EXPECT_DOUBLE_EQ(drift.ratio(), 0.9);
  EXPECT_EQ(drift.outcome(), Outcome::kFaster);
}

TEST(ComparisonTest, AnotherBatchIsComparedPerSample) {
  const Comparison larger = Pairs({10, 10, 10}, {18, 18, 18}, 20);
  EXPECT_DOUBLE_EQ(larger.ratio(), 0.9);
  EXPECT_EQ(larger.before_ms(), 10);
  EXPECT_EQ(larger.after_ms(), 18);
  EXPECT_DOUBLE_EQ(larger.before_samples_per_s(), 1000);
  EXPECT_NEAR(larger.after_samples_per_s(), 1111, 1);
  EXPECT_NEAR(larger.after_interval_ms().low, 18, 1e-9);
}

TEST(PeriodTest, IsTheLeastCommonMultiple) {
  EXPECT_EQ(PeriodOf(Of("--batch 4")), 1);
  EXPECT_EQ(PeriodOf(Of("--validate-every 4 --checkpoint-every 6")), 12);
  EXPECT_EQ(PeriodOf(Of("--validate-every 0")), 1);
  EXPECT_EQ(PeriodOf(Of("--checkpoint-every 20")), 20);
  EXPECT_EQ(PeriodOf(Of("--checkpoint-every 3 --workers 2")), 6);
}

TEST(PeriodTest, OnAGpuTheHostWaitsWhereItReadsTheLoss) {
  EXPECT_EQ(PeriodOf(Of("--device cuda")), 5);
  EXPECT_EQ(PeriodOf(Of("--device cuda --log-every 4 --workers 8")), 8);
  EXPECT_EQ(PeriodOf(Of("--device cpu --log-every 4")), 1);
}

TEST(PeriodTest, RunsAreMadeOfWholePeriods) {
  const Length length{.steps = 36, .warm_steps = 4};
  EXPECT_EQ(WholePeriods(length, 1).steps, 36);
  EXPECT_EQ(WholePeriods(length, 5).steps, 4 + 35);
  EXPECT_EQ(WholePeriods(length, 40).steps, 4 + 40);
  EXPECT_EQ(WholePeriods(length, 40).warm_steps, 4);
}

}  // namespace
}  // namespace measure
