#include "measure/advice.h"

#include <gtest/gtest.h>

namespace measure {
namespace {

constexpr char kAdvice[] = R"({
  "version": 1, "run": {"usable_cores": 4},
  "steps": {"count": 9, "steady": 8, "mean_ms": 120.5, "cov": 0.05},
  "findings": [
    {"id": "cores-idle", "severity": "high", "gain_is": "predicted",
     "gain_ms_per_step": {"expected": 20, "low": 15, "high": 25},
     "evidence": "e", "where": "w", "fix": {"cpp": "f", "python": "p"},
     "settings": {"intra_op_threads": 2, "set_to_none": true,
                  "conv_bias": false, "batch_factor": 1.5,
                  "optimizer_step": "fused"}},
    {"id": "noted", "severity": "note", "gain_is": "bound",
     "gain_ms_per_step": {"expected": 3, "low": 0, "high": 3}},
    {"id": "costless", "severity": "low", "gain_is": "none",
     "gain_ms_per_step": {"expected": 0, "low": 0, "high": 0}}],
  "plan": {"ids": ["cores-idle"], "settings": {"intra_op_threads": 2},
           "step_before_ms": 120, "step_after_ms": 90}})";

TEST(AdviceTest, ReadsWhatAProgramCanFollow) {
  absl::StatusOr<Advice> advice = ParseAdvice(kAdvice, "a.json");
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  EXPECT_EQ(advice->path, "a.json");
  EXPECT_EQ(advice->step_ms, 120.5);
  EXPECT_EQ(advice->steady, 8);
  EXPECT_EQ(advice->cov, 0.05);
  EXPECT_EQ(advice->usable_cores, 4);
  ASSERT_EQ(advice->findings.size(), 3u);
  const AdvisedChange& first = advice->findings[0];
  EXPECT_EQ(first.id, "cores-idle");
  EXPECT_EQ(first.gain_ms, 20);
  EXPECT_EQ(first.gain_low_ms, 15);
  EXPECT_EQ(first.gain_high_ms, 25);
  EXPECT_EQ(first.fix, "f");
  EXPECT_EQ(first.settings,
            (std::map<std::string, std::string>{{"intra_op_threads", "2"},
                                                {"set_to_none", "true"},
                                                {"conv_bias", "false"},
                                                {"batch_factor", "1.500000"},
                                                {"optimizer_step", "fused"}}));
}

TEST(AdviceTest, ReadsThePlan) {
  const AdvisedPlan plan = ParseAdvice(kAdvice, "a.json")->plan;
  EXPECT_EQ(plan.before_ms, 120);
  EXPECT_EQ(plan.after_ms, 90);
  EXPECT_EQ(plan.settings,
            (std::map<std::string, std::string>{{"intra_op_threads", "2"}}));
}

TEST(AdviceTest, WhatIsHeldBackIsNotHealthy) {
  const Advice advice = *ParseAdvice(
      R"({"version": 1, "steps": {"mean_ms": 1}, "findings": [],
          "held_back": ["zero-grad-kernels"]})",
      "a.json");
  EXPECT_EQ(advice.held_back, std::vector<std::string>{"zero-grad-kernels"});
  EXPECT_FALSE(advice.Healthy());
}

TEST(PromisedByTest, IsOfTheStepThatIsMeasured) {
  const Advice advice{.step_ms = 100, .all_mean_ms = 120};
  AdvisedChange change{.gain_ms = 20, .gain_low_ms = 10, .gain_high_ms = 40};
  PromisedStep step = PromisedBy(change, advice, 1);
  EXPECT_EQ(step.before_ms, 100);
  EXPECT_EQ(step.after_ms, 80);
  EXPECT_EQ(step.low_ms, 60);
  EXPECT_EQ(step.high_ms, 90);
  step = PromisedBy(change, advice, 4);
  EXPECT_EQ(step.before_ms, 120);
  EXPECT_EQ(step.after_ms, 100);
  change.of_ms = 130;
  EXPECT_EQ(PromisedBy(change, advice, 1).before_ms, 130);
  EXPECT_EQ(PromisedBy(change, advice, 1).after_ms, 110);
}

TEST(PromisedByTest, AGainOfTheWholeStepIsNoPromise) {
  const Advice advice{.step_ms = 100};
  AdvisedChange change{.gain_ms = 100, .gain_low_ms = 50, .gain_high_ms = 200};
  PromisedStep step = PromisedBy(change, advice, 1);
  EXPECT_EQ(step.after_ms, 100);
  EXPECT_EQ(step.low_ms, 100);
  EXPECT_EQ(step.high_ms, 100);
  change.gain_ms = 80;
  step = PromisedBy(change, advice, 1);
  EXPECT_EQ(step.low_ms, 20);
  EXPECT_EQ(step.after_ms, 20);
  EXPECT_EQ(step.high_ms, 50);
}

TEST(AdviceTest, OnlyWhatIsMoreThanANoteAndWinsTimeIsToBeDone) {
  const Advice advice = *ParseAdvice(kAdvice, "a.json");
  EXPECT_FALSE(advice.Healthy());
  EXPECT_NE(advice.Find("cores-idle"), nullptr);
  EXPECT_EQ(advice.Find("noted"), nullptr);
  EXPECT_EQ(advice.Find("costless"), nullptr);
  Advice rest = advice;
  rest.findings.erase(rest.findings.begin());
  EXPECT_TRUE(rest.Healthy());
}

TEST(AdviceTest, OtherFilesAreRefused) {
  for (const char* json :
       {"", "{}", R"({"version": 2, "steps": {"mean_ms": 1}, "findings": []})",
        R"({"version": 1, "steps": {"mean_ms": 0}, "findings": []})",
        R"({"version": 1, "steps": {"mean_ms": 1}, "findings": 3})"}) {
    EXPECT_EQ(ParseAdvice(json, "x").status().code(),
              absl::StatusCode::kDataLoss)
        << json;
  }
}

}  // namespace
}  // namespace measure
