// Tests `compare --fail-over` and `analyze --fail-on`: what fails, and that
// noise does not fail.
#include "gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "support/shell.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace stepscope::gate_test {
namespace {

using testing::HasSubstr;

// Returns a comparison with steps of 100 ms before, and `slower_low` to
// `slower_high` ms more after.
Comparison Slower(double slower_low, double slower_high, int64_t steps = 12) {
  Comparison comparison;
  comparison.before = {
      .steps = steps, .mean_ms = 100, .median_ms = 100, .step_ms = 100};
  comparison.after = comparison.before;
  comparison.measured = {.expected_ms = -(slower_low + slower_high) / 2,
                         .low_ms = -slower_high,
                         .high_ms = -slower_low};
  return comparison;
}

TEST(JudgeComparisonTest, FailsIfTheWholeIntervalLiesBeyondBothLimits) {
  const GateVerdict verdict =
      JudgeComparison(Slower(6, 12), {.frac = 0.05, .min_ms = 1});
  EXPECT_EQ(verdict.status, 4);
  EXPECT_EQ(verdict.why,
            "slower by 9.00 ms per step (95 %: 6.00 to 12.0), more than the "
            "5.00 ms allowed");
}

TEST(JudgeComparisonTest, PassesWhereNoiseReachesALimit) {
  for (const Comparison& one : {Slower(4, 40), Slower(-1, 40), Slower(-9, -6)})
    EXPECT_EQ(JudgeComparison(one, {.frac = 0.05}).status, 0);
  EXPECT_EQ(JudgeComparison(Slower(6, 12), {.frac = 0.05, .min_ms = 7}).status,
            0);
  EXPECT_EQ(JudgeComparison(Slower(0, 12), {}).status, 0);
}

TEST(JudgeComparisonTest, FewerStepsThanAnIntervalNeedsGiveNoVerdict) {
  EXPECT_EQ(JudgeComparison(Slower(6, 12, 6), {.frac = 0.05}).status, 4);
  const GateVerdict verdict = JudgeComparison(Slower(6, 12, 5), {.frac = 0.05});
  EXPECT_EQ(verdict.status, 1);
  EXPECT_THAT(verdict.why, HasSubstr("6 steady steps"));
  Comparison none;
  none.why_not = "the first trace has no steps";
  EXPECT_EQ(JudgeComparison(none, {}).why,
            "no verdict: the first trace has no steps");
}

TEST(JudgeComparisonTest, TimeWithoutACoreIsNotTheProgramsOwn) {
  Comparison busy = Slower(20, 40);
  busy.causes = {{.name = "contended", .before_ms = 5, .after_ms = 21}};
  const GateVerdict passed = JudgeComparison(busy, {.frac = 0.05});
  EXPECT_EQ(passed.status, 0);
  EXPECT_THAT(passed.why, HasSubstr("waited for a core for 16.0 ms more"));
  busy.causes[0].after_ms = 19;  // leaves 6 of 20 ms
  EXPECT_EQ(JudgeComparison(busy, {.frac = 0.05}).status, 4);
  busy.causes[0].before_ms = 60;  // less contention is no excuse either
  EXPECT_EQ(JudgeComparison(busy, {.frac = 0.05}).status, 4);
}

// Twelve steps of about 100 ms that vary by 8 %, in a run that is off by 2 %.
Trace NoisyRun(std::mt19937& random) {
  std::normal_distribution<double> normal;
  const double run_ms = 100 * std::exp(0.02 * normal(random));
  std::string text = "watch step op\n";
  double at_ms = 0;
  for (int step = 0; step < 12; ++step) {
    const double end_ms = at_ms + run_ms * std::exp(0.08 * normal(random));
    const std::string span = std::to_string(std::lround(at_ms * 1e6)) + ".." +
                             std::to_string(std::lround(end_ms * 1e6));
    text += "step " + span + " thread=0 number=" + std::to_string(step) +
            "\nop " + span + " thread=0 aten::mm\n";
    at_ms = end_ms;
  }
  return TraceFromText(text);
}

TEST(JudgeComparisonTest, TwoRunsOfOneProgramPass) {
  std::mt19937 random(7);
  int failed = 0;
  for (int pair = 0; pair < 40; ++pair) {
    const Comparison comparison = Compare(NoisyRun(random), NoisyRun(random));
    const GateVerdict verdict = JudgeComparison(comparison, {.frac = 0.05});
    ASSERT_NE(verdict.status, 1) << verdict.why;
    failed += verdict.status == 4;
  }
  EXPECT_LE(failed, 2);
}

Report WithFinding(FindingSeverity severity, GainKind kind, double expected_ms,
                   double low_ms) {
  Report report;
  report.steps = {.count = 10, .steady = 10, .mean_ms = 100};
  Finding finding;
  finding.id = "host-sync";
  finding.severity = severity;
  finding.gain_kind = kind;
  finding.gain = {.expected_ms = expected_ms, .low_ms = low_ms};
  finding.baseline_ms = 100;
  report.findings = {finding};
  return report;
}

TEST(JudgeReportsTest, FailsIfTheLowEndOfTheGainIsAsSevere) {
  const auto judge = [](double low_ms, GainKind kind = GainKind::kPredicted) {
    return JudgeReports({WithFinding(FindingSeverity::kHigh, kind, 15, low_ms)},
                        FindingSeverity::kHigh);
  };
  EXPECT_EQ(judge(11).status, 4);
  EXPECT_EQ(judge(11).why,
            "host-sync is high: its change gains at least 11.0 of 100 ms per "
            "step");
  EXPECT_EQ(judge(9).status, 0);
  EXPECT_EQ(judge(-20).status, 0);
  EXPECT_EQ(judge(11, GainKind::kBound).status, 0);
}

TEST(JudgeReportsTest, LesserFindingsPass) {
  // Hints are at most medium, whatever their gain.
  const Report hint =
      WithFinding(FindingSeverity::kMedium, GainKind::kPredicted, 50, 45);
  EXPECT_EQ(JudgeReports({hint}, FindingSeverity::kHigh).status, 0);
  EXPECT_EQ(JudgeReports({hint}, FindingSeverity::kMedium).status, 4);
}

TEST(JudgeReportsTest, ATraceWithoutStepsGivesNoVerdict) {
  const Report severe =
      WithFinding(FindingSeverity::kHigh, GainKind::kPredicted, 15, 11);
  EXPECT_EQ(JudgeReports({Report()}, FindingSeverity::kLow).status, 1);
  EXPECT_EQ(JudgeReports({Report(), severe}, FindingSeverity::kLow).status, 4);
}

class GateTest : public testing::Test {
 protected:
  Outcome Run(const std::string& words) {
    return RunShell("'" STEPSCOPE_PROGRAM "' " + words, folder_);
  }

  TempFolder folder_;
  const std::string traces_ = STEPSCOPE_TEST_DATA "/traces/";
  const std::string pageable_ = traces_ + "h2d_a100_pageable.json.gz";
  const std::string pinned_ = traces_ + "h2d_a100_pinned.json.gz";
  const std::string resnet_ =
      traces_ + "resnet50_v100_workers0.pt.trace.json.gz";
};

TEST_F(GateTest, CompareExitsWithFourWhereTheSecondTraceIsSlower) {
  const std::string options = "compare --fail-over 5% --min-ms 1 ";
  const Outcome slower = Run(options + pinned_ + " " + pageable_);
  EXPECT_EQ(slower.status, 4);
  EXPECT_THAT(slower.out, HasSubstr("measured"));
  EXPECT_THAT(slower.err, HasSubstr("stepscope: slower by "));
  for (const std::string& pair :
       {pageable_ + " " + pinned_, pageable_ + " " + pageable_}) {
    const Outcome run = Run(options + pair);
    EXPECT_EQ(run.status, 0) << pair;
    EXPECT_EQ(run.err, "");
  }
  EXPECT_EQ(Run("compare " + pinned_ + " " + pageable_).status, 0);
}

TEST_F(GateTest, AnalyzeExitsWithFourWhereAFindingIsSurelyAsSevere) {
  // sync-data-loading is critical, but only high at the low end of its range.
  const Outcome high = Run("analyze --fail-on high " + resnet_);
  EXPECT_EQ(high.status, 4);
  EXPECT_THAT(high.err, HasSubstr("sync-data-loading is critical"));
  EXPECT_EQ(Run("analyze --fail-on critical " + resnet_).status, 0);
}

TEST_F(GateTest, WrongLimitsAreWrongUsage) {
  const auto expect = [&](const std::string& words, const std::string& says) {
    const Outcome run = Run(words + " a b");
    EXPECT_EQ(run.status, 2) << words;
    EXPECT_THAT(run.err, HasSubstr(says));
  };
  expect("compare --fail-over 5", "a percentage such as 5%, not '5'");
  expect("compare --fail-over=-5%", "not '-5%'");
  expect("compare --min-ms one", "a number of milliseconds, not 'one'");
  expect("analyze --fail-on severe", "low, medium, high or critical");
}

}  // namespace
}  // namespace stepscope::gate_test
