// Runs the correctness bench on a few fixed seeds. `bash tests/advice/run.sh`
// runs it on many fresh ones.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/algorithm/container.h"
#include "advice/score.h"
#include "support/explained.h"

namespace stepscope::advice_test {
namespace {

constexpr uint64_t kSeeds[] = {11};

TEST(AdviceTest, FindsWhatWasPlantedAndNothingElse) {
  absl::StatusOr<std::vector<AdviceCase>> cases =
      ReadCases(STEPSCOPE_ADVICE_CASES);
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_GE(cases->size(), 20u);
  Score score;
  for (const AdviceCase& one : *cases) {
    if (!one.pending.empty()) continue;
    for (uint64_t seed : kSeeds) {
      const absl::StatusOr<Trial> trial = Try(one, seed);
      ASSERT_TRUE(trial.ok()) << one.name << ": " << trial.status();
      score.Add(one, seed, *trial);
      EXPECT_EQ(Unexplained(trial->report), "") << one.name;
      // A plan lists what to change, in words. A bare rule ID is not such a
      // text.
      for (const std::string& change : trial->report.plan.changes) {
        EXPECT_FALSE(absl::c_linear_search(trial->report.plan.ids, change))
            << change;
      }
    }
  }
  for (const Failure& failure : score.failures()) {
    ADD_FAILURE() << failure.case_name << ", seed " << failure.seed << ": "
                  << failure.what;
  }
}

AdviceCase Parsed(const std::string& text) {
  const absl::StatusOr<std::vector<AdviceCase>> cases = ParseCases(text);
  EXPECT_TRUE(cases.ok()) << cases.status();
  return cases.ok() && !cases->empty() ? cases->front() : AdviceCase();
}

TEST(AdviceTest, AMissedFaultIsAFailure) {
  const AdviceCase one = Parsed(
      "=== nothing wrong here\nplant cores-idle\n---\ncores 1\nstep { op "
      "aten::mm 5ms parallel }\n");
  Score score;
  score.Add(one, 1, *Try(one, 1));
  ASSERT_FALSE(score.perfect());
  EXPECT_NE(score.failures()[0].what.find("missed"), std::string::npos);
}

TEST(AdviceTest, AnUnplantedFindingIsAFailure) {
  const AdviceCase one = Parsed(
      "=== idle cores\n---\ncores 8\nintra_op 1\nstep { repeat 20 { op "
      "aten::mm 5ms parallel } }\n");
  Score score;
  score.Add(one, 1, *Try(one, 1));
  ASSERT_FALSE(score.perfect());
  EXPECT_NE(score.failures()[0].what.find("cores-idle is false"),
            std::string::npos);
}

TEST(AdviceTest, AWrongPredictionIsAFailure) {
  const AdviceCase one = Parsed(
      "=== a fix that brings less than it should\nplant "
      "cores-idle\n---\ncores 8\n-intra_op 1\n+intra_op 8\nstep { repeat 20 "
      "{\n-op aten::mm 5ms parallel\n+op aten::mm 20ms parallel\n} }\n");
  Score score;
  score.Add(one, 1, *Try(one, 1));
  ASSERT_FALSE(score.perfect());
  EXPECT_NE(score.failures()[0].what.find("predicts"), std::string::npos);
}

// Returns the score of one finding: the step takes 100 ms, and the fix makes it
// `gain_ms` shorter.
Score ScoreOf(GainKind kind, double promised_ms, double gain_ms) {
  AdviceCase one;
  one.plant = {"cores-idle"};
  one.has_fix = true;
  Trial trial;
  trial.now_ms = trial.unfixed_ms = trial.report.steps.mean_ms = 100;
  trial.fixed_ms = {100 - gain_ms};
  Finding finding;
  finding.id = "cores-idle";
  finding.gain_kind = kind;
  finding.gain.expected_ms = promised_ms;
  trial.report.findings = {finding};
  Score score;
  score.Add(one, 1, trial);
  return score;
}

TEST(AdviceTest, GainsAreScoredNotSteps) {
  const auto perfect = [](double promised_ms, double gain_ms) {
    return ScoreOf(GainKind::kPredicted, promised_ms, gain_ms).perfect();
  };
  EXPECT_TRUE(perfect(7, 7));
  EXPECT_FALSE(perfect(1, 7));
  EXPECT_FALSE(perfect(16, 7));
  EXPECT_TRUE(perfect(56, 50));
  EXPECT_FALSE(perfect(60, 50));
}

TEST(AdviceTest, ABoundOfThreeTimesTheGainIsAFailure) {
  const auto perfect = [](double promised_ms, double gain_ms) {
    return ScoreOf(GainKind::kBound, promised_ms, gain_ms).perfect();
  };
  EXPECT_TRUE(perfect(30, 12));
  EXPECT_FALSE(perfect(40, 12));
  EXPECT_FALSE(perfect(12, 30));
}

TEST(AdviceTest, CasesSayWhichLineIsWrong) {
  EXPECT_FALSE(ParseCases("=== a\nplunt x\n---\n").ok());
  EXPECT_FALSE(ParseCases("=== a\nvary x 3\n---\n").ok());
  EXPECT_FALSE(ParseCases("=== a\n").ok());
}

}  // namespace
}  // namespace stepscope::advice_test
