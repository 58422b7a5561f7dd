// A few seeds of the correctness bench; `bash tests/advice/run.sh` runs many
// fresh ones.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "advice/score.h"

namespace stepscope {
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
      "=== a fix that brings more than it should\nplant "
      "cores-idle\n---\ncores 8\n-intra_op 1\n+intra_op 8\nstep { repeat 20 "
      "{\n-op aten::mm 5ms parallel\n+op aten::mm 2ms parallel\n} }\n");
  Score score;
  score.Add(one, 1, *Try(one, 1));
  ASSERT_FALSE(score.perfect());
  EXPECT_NE(score.failures()[0].what.find("predicts"), std::string::npos);
}

TEST(AdviceTest, CasesSayWhichLineIsWrong) {
  EXPECT_FALSE(ParseCases("=== a\nplunt x\n---\n").ok());
  EXPECT_FALSE(ParseCases("=== a\nvary x 3\n---\n").ok());
  EXPECT_FALSE(ParseCases("=== a\n").ok());
}

}  // namespace
}  // namespace stepscope
