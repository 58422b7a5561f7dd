#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>

#include "analysis/rules/rule_testing.h"
#include "support/cpu_loop.h"

namespace stepscope {
namespace {

TEST(PlanTest, LeavesOutWhatAddsNothingToABetterChange) {
  // On two cores, two threads win more than a worker, and then no core is left
  // for the worker.
  const Report report =
      Analyze(Simulate({.batch_ms = 40, .ops = Ops(40, 6)}).trace);
  ASSERT_TRUE(Promises(report, "cores-idle"));
  ASSERT_TRUE(Promises(report, "sync-data-loading"));
  EXPECT_EQ(report.plan.ids, std::vector<std::string>{"cores-idle"});
  EXPECT_EQ(report.plan.changes,
            std::vector<std::string>{"2 intra-op threads"});
}

TEST(PlanTest, CombinesChangesThatHelpEachOther) {
  const Loop loop{.batch_ms = 100, .ops = Ops(40, 5), .cores = 8};
  const LoopRun run = Simulate(loop);
  const Report report = Analyze(run.trace);
  ASSERT_EQ(report.plan.ids.size(), 2u);
  EXPECT_NEAR(report.plan.step_before_ms, run.mean_step_ms, 0.5);
  // The truth of what the plan sets.
  Loop edited = loop;
  for (const std::string& change : report.plan.changes) {
    const int count = std::stoi(change);
    (change.find("worker") != std::string::npos ? edited.workers
                                                : edited.threads) = count;
  }
  EXPECT_GE(edited.workers, 1);
  EXPECT_GT(edited.threads, 1);
  edited.warmup = 12;
  edited.steps = 8;
  EXPECT_NEAR(report.plan.step_after_ms / Simulate(edited).mean_step_ms, 1,
              0.15);
  ASSERT_EQ(report.plan.after_each_ms.size(), 2u);
  EXPECT_LT(report.plan.after_each_ms[0], report.plan.step_before_ms);
  EXPECT_LT(report.plan.after_each_ms[1], report.plan.after_each_ms[0]);
  EXPECT_DOUBLE_EQ(report.plan.after_each_ms[1], report.plan.step_after_ms);
  EXPECT_LE(report.plan.low_ms, report.plan.step_after_ms);
  EXPECT_GE(report.plan.high_ms, report.plan.step_after_ms);
}

TEST(PlanTest, IsEmptyForAHealthyRun) {
  const Report report =
      Analyze(Simulate({.ops = Ops(40, 5), .threads = 2}).trace);
  EXPECT_TRUE(report.plan.ids.empty());
  EXPECT_TRUE(report.findings.empty());
}

TEST(PlanTest, FindingsAreSortedByGain) {
  const Report report =
      Analyze(Simulate({.batch_ms = 40, .ops = Ops(40, 6)}).trace);
  ASSERT_GE(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].id, "cores-idle");
  EXPECT_EQ(report.findings[1].id, "sync-data-loading");
  EXPECT_GE(report.findings[0].gain.expected_ms,
            report.findings[1].gain.expected_ms);
}

}  // namespace
}  // namespace stepscope
