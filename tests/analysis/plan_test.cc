#include "engine/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <string>

#include "analysis/rules/rule_testing.h"
#include "context/analysis_context.h"
#include "support/cpu_loop.h"
#include "support/gpu_loop.h"
#include "support/program_simulator.h"

namespace stepscope::plan_test {
namespace {

TEST(PlanTest, LeavesOutWhatAddsNothingToABetterChange) {
  // On two cores, two threads gain more than a worker, and then no core is free
  // for a worker.
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
  // Simulates the changes of the plan.
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

// Replay cannot make a change of which only a bound is known, so it does not
// tell what another one gains after it.
TEST(PlanTest, LeavesOutWhatGainsAfterABound) {
  const ProgramRun run = RunGpuLoop(
      "repeat 50 { op aten::mm 12us { kernel gemm 200us } }\n"
      "sync device\n",
      {.steps = 6});
  const AnalysisContext context(run.ranks[0]);
  ASSERT_TRUE(context.replay.check().valid) << context.replay.check().why_not;
  SizedFinding owner, general;
  owner.finding.id = "broadcast-contraction";
  owner.finding.gain_kind = GainKind::kBound;
  owner.finding.gain.expected_ms = 4;
  general.finding.id = "unfused-pointwise";
  general.finding.severity = FindingSeverity::kHigh;
  general.finding.gain_kind = GainKind::kPredicted;
  general.finding.gain.expected_ms = 1;
  Edit edit;
  for (RowId row = 0; row < run.ranks[0].kernels().size(); ++row) {
    edit.scales.push_back({{ActivityTable::kKernel, row}, 0.5});
  }
  general.edits = {edit};
  std::vector<SizedFinding> found = {owner, general};
  const Plan plan = MakePlan(context, found);
  EXPECT_EQ(plan.ids, std::vector<std::string>{"unfused-pointwise"});
  // A plan of one change says what its finding says.
  EXPECT_NEAR(plan.step_before_ms - plan.step_after_ms, 1, 1e-9);
  found[1].after = owner.finding.id;
  EXPECT_TRUE(MakePlan(context, found).ids.empty());
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

// A step on an A100 whose float32 products take 74 ms. `before` runs on the
// host first, and `after` at the end.
ProgramRun Float32After(const std::string& before,
                        const std::string& after = "") {
  return MustRunProgram(R"(
    gpu A100-SXM4-80GB pcie=24 pageable=5 cc=8.0 sms=108 bandwidth=2039
    cores 16
    steps 6 warmup=6
    )" + before + R"(
      op aten::to 3us { op aten::_to_copy 5us { op aten::copy_ 5us { copy h2d 4KiB pinned async } } }
      range phase forward { repeat 6 {
        op aten::linear 8us grad { op aten::addmm 14us in=float[2048],float[8192x2048],float[2048x2048] { kernel ampere_sgemm_128x128_tn 4100us } }
      } }
      backward { repeat 6 { node AddmmBackward0 8us {
        op aten::mm 14us in=float[8192x2048],float[2048x2048] { kernel ampere_sgemm_128x128_nn 4100us }
        op aten::mm 14us in=float[2048x8192],float[8192x2048] { kernel ampere_sgemm_128x128_nt 4100us }
      } } }
      )" + after + "\n}");
}

TEST(PlanTest, ANoteThatOthersMakeRoomForBecomesAFinding) {
  // The device waits for batches for 26 of 100 ms. Products in 16 bits gain
  // nothing until batches arrive in time; after that, they gain most.
  const ProgramRun run =
      Float32After("loader workers=0 cpu=100ms\nstep { load");
  const Report report = Analyze(run.ranks[0]);
  EXPECT_EQ(report.plan.ids, (std::vector<std::string>{"sync-data-loading",
                                                       "tensor-cores-idle"}));
  const Finding* finding = Find(report, "tensor-cores-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_LT(finding->gain.expected_ms, 0.01 * report.steps.mean_ms);
  // Alone, the finding remains a note.
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  EXPECT_THAT(finding->evidence,
              testing::HasSubstr(" After sync-data-loading it gains "));
  EXPECT_EQ(report.findings.front().id, "sync-data-loading");
}

TEST(PlanTest, ANoteStaysOneWhereNothingMakesRoomForIt) {
  // Nothing can remove 100 ms of the program's own code.
  const ProgramRun run = Float32After("step { host 100ms");
  const Report report = Analyze(run.ranks[0]);
  EXPECT_EQ(std::ranges::count(report.plan.ids, "tensor-cores-idle"), 0);
  const Finding* finding = Find(report, "tensor-cores-idle");
  if (finding != nullptr) {
    EXPECT_EQ(finding->status, FindingStatus::kOk);
  }
}

TEST(PlanTest, SaysWhereItTakesAnotherVariantThanTheFindingPrints) {
  // Two workers keep up with products of 74 ms, but not with 16-bit products.
  const ProgramRun run =
      Float32After("loader workers=0 cpu=100ms\nstep { load");
  const Report report = Analyze(run.ranks[0]);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->fix_python, testing::HasSubstr("num_workers=2,"));
  EXPECT_THAT(finding->settings,
              testing::ElementsAre(Setting{"workers", int64_t{2}}));
  EXPECT_THAT(report.plan.changes,
              testing::ElementsAre("8 loader workers", "autocast to 16 bits"));
  EXPECT_THAT(report.plan.settings,
              testing::ElementsAre(Setting{"workers", int64_t{8}}));
  EXPECT_THAT(
      finding->evidence,
      testing::HasSubstr(" The plan takes 8 loader workers: together with "
                         "tensor-cores-idle, 2 loader workers would leave the "
                         "step at "));
  EXPECT_LT(report.plan.step_after_ms, 20);
}

TEST(PlanTest, TakesTheVariantThatTheFindingPrintsWhereAnotherHardlyGains) {
  // Two workers make a batch every 50.2 ms, and the kernels take 50 ms.
  const ProgramRun run = RunGpuLoop("load\n" + ManyKernels(10, 5'000, 10), {},
                                    "cores 16\nloader workers=0 cpu=100.4ms");
  const Report report = Analyze(run.ranks[0]);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->settings,
              testing::ElementsAre(Setting{"workers", int64_t{2}}));
  EXPECT_THAT(report.plan.settings,
              testing::ElementsAre(Setting{"workers", int64_t{2}}));
  EXPECT_THAT(finding->evidence,
              testing::Not(testing::HasSubstr("The plan takes")));
}

TEST(PlanTest, PromisesNoMoreBatchesThanWorkersCanMake) {
  // Two workers make a batch every 65 ms. The loop reads a number back in each
  // step, so at present it never waits for them.
  const ProgramRun run =
      Float32After("loader workers=2 cpu=130ms\nstep { load", "item");
  const Report report = Analyze(run.ranks[0]);
  EXPECT_THAT(report.plan.ids, testing::Contains("tensor-cores-idle"));
  EXPECT_NEAR(report.plan.step_after_ms, 65, 4);
  EXPECT_EQ(report.plan.assumption, "");
}

TEST(PlanTest, SaysWhatItTakesForGrantedOfWorkersThatWereNotMeasured) {
  const ProgramRun run = Float32After(
      "recorder kineto\nloader workers=2 cpu=130ms\nstep { load", "item");
  const Report report = Analyze(run.ranks[0]);
  EXPECT_THAT(report.plan.ids, testing::Contains("tensor-cores-idle"));
  EXPECT_LT(report.plan.step_after_ms, 20);
  EXPECT_THAT(report.plan.assumption,
              testing::HasSubstr("how fast they can be was not recorded"));
}

TEST(PlanTest, FasterKernelsGainNothingWhereEachStepWaitsForWorkers) {
  // Shorter kernels make the wait for the next batch longer by the same time.
  const ProgramRun run =
      Float32After("loader workers=2 cpu=200ms\nstep { load", "item");
  const Report report = Analyze(run.ranks[0]);
  EXPECT_NEAR(report.steps.mean_ms, 100, 6);
  EXPECT_THAT(report.plan.ids, testing::IsEmpty());
  EXPECT_TRUE(Promises(report, "loader-bound"));
}

}  // namespace
}  // namespace stepscope::plan_test
