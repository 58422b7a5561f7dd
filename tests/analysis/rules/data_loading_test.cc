#include "analysis/simulator.h"
#include "rule_testing.h"
#include "support/trace_text.h"

namespace stepscope {
namespace {

Loop Loading(double batch_ms) {
  return {.batch_ms = batch_ms, .ops = Ops(40, 2.5)};
}

TEST(SyncDataLoadingTest, FiresAndPredictsAWorkersGain) {
  const Report report = Analyze(Simulate(Loading(37)).trace);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_is, GainKind::kPredicted);
  EXPECT_EQ(finding->confidence, Confidence::kProven);
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NEAR(finding->gain.expected_ms, 37, 1);
  EXPECT_LE(finding->gain.low_ms, finding->gain.expected_ms);
  EXPECT_GE(finding->gain.high_ms, finding->gain.expected_ms);
  EXPECT_NE(finding->fix_cpp.find("workers(1).max_jobs(2)"), std::string::npos);
  EXPECT_NE(finding->fix_python.find("num_workers=1"), std::string::npos);
  EXPECT_EQ(finding->examples.size(), 3u);
  EXPECT_TRUE(IsClean(report, "loader-bound"));
}

TEST(SyncDataLoadingTest, IsGoneWithAWorker) {
  Loop loop = Loading(37);
  loop.workers = 1;
  EXPECT_TRUE(IsClean(Analyze(Simulate(loop).trace), "sync-data-loading"));
}

TEST(SyncDataLoadingTest, PromisesNothingWhenTheThreadsHaveAllCores) {
  Loop loop = Loading(37);
  loop.threads = 2;
  const Report report = Analyze(Simulate(loop).trace);
  EXPECT_FALSE(Promises(report, "sync-data-loading"));
  EXPECT_FALSE(IsClean(report, "sync-data-loading"));
  EXPECT_EQ(Find(report, "sync-data-loading")->severity,
            FindingSeverity::kNote);
  EXPECT_TRUE(report.plan.ids.empty());
}

TEST(SyncDataLoadingTest, GivesUpAThreadForAWorkerWhereThatIsBetter) {
  Loop loop = Loading(60);
  loop.threads = loop.cores = 8;
  const Report report = Analyze(Simulate(loop).trace);
  ASSERT_TRUE(Promises(report, "sync-data-loading"));
  EXPECT_NE(Find(report, "sync-data-loading")->fix_cpp.find("set_num_threads"),
            std::string::npos);
}

TEST(SyncDataLoadingTest, IgnoresBatchesThatComeFromMemory) {
  Loop loop{.batch_ms = 0.19, .ops = Ops(5, 0.5)};
  EXPECT_TRUE(IsClean(Analyze(Simulate(loop).trace), "sync-data-loading"));
  loop.batch_ms = 0.25;
  EXPECT_TRUE(Promises(Analyze(Simulate(loop).trace), "sync-data-loading"));
}

TEST(SyncDataLoadingTest, IgnoresLoadingBelowOnePerCentOfTheStep) {
  EXPECT_TRUE(
      IsClean(Analyze(Simulate(Loading(0.9)).trace), "sync-data-loading"));
  EXPECT_TRUE(
      Promises(Analyze(Simulate(Loading(1.3)).trace), "sync-data-loading"));
}

TEST(SyncDataLoadingTest, CannotLookWithoutLoaderRanges) {
  const Report report = Analyze(Simulate({.ops = Ops(10, 1)}).trace);
  EXPECT_NE(WhyBlind(report, "sync-data-loading").find("stepscope::Batches"),
            std::string::npos);
  EXPECT_NE(WhyBlind(report, "loader-bound"), "");
}

TEST(SyncDataLoadingTest, StaysSilentUnderABusyGpu) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..10000000 thread=0 number=0
    range 0..100000 thread=0 kind=loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
    runtime_call 100..200 thread=0 correlation=1 cudaLaunchKernel
    kernel 300..10000000 correlation=1 gemm
  )"));
  EXPECT_FALSE(Promises(report, "sync-data-loading"));
}

TEST(SyncDataLoadingTest, IsABoundOnAGpuRun) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..10000000 thread=0 number=0
    range 0..5000000 thread=0 kind=loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
    runtime_call 5000000..5001000 thread=0 correlation=1 cudaLaunchKernel
    kernel 5002000..10000000 correlation=1 gemm
  )"));
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_is, GainKind::kBound);
  EXPECT_DOUBLE_EQ(finding->gain.expected_ms, 5);
  // A bound has the severity of half its value.
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NE(finding->fix_python.find("pin_memory=True"), std::string::npos);
}

TEST(LoaderBoundTest, FiresWhenOneWorkerIsTooSlow) {
  Loop loop = Loading(250);
  loop.workers = 1;
  loop.cores = 8;
  loop.warmup = 12;
  const Report report = Analyze(Simulate(loop).trace);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_is, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 250 - 101, 15);
  EXPECT_NE(finding->fix_python.find("num_workers=3"), std::string::npos);
}

TEST(LoaderBoundTest, SaysSoWhenTheCoresAreFull) {
  Loop loop = Loading(250);
  loop.workers = 2;
  loop.cores = 2;
  loop.warmup = 12;
  const Report report = Analyze(Simulate(loop).trace);
  EXPECT_FALSE(Promises(report, "loader-bound"));
}

TEST(LoaderBoundTest, IgnoresWaitsBelowOneTwentieth) {
  const auto with_wait = [](int64_t ns) {
    std::string text;
    for (int i = 0; i < 3; ++i) {
      const int64_t begin = i * 100'000'000;
      text += "step " + std::to_string(begin) + ".." +
              std::to_string(begin + 100'000'000) +
              " thread=0 number=" + std::to_string(i) + "\nrange " +
              std::to_string(begin) + ".." + std::to_string(begin + ns) +
              " thread=0 kind=loader "
              "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__\n";
    }
    return Analyze(TraceFromText(text));
  };
  EXPECT_TRUE(IsClean(with_wait(4'900'000), "loader-bound"));
  EXPECT_TRUE(Promises(with_wait(5'000'000), "loader-bound"));
  EXPECT_TRUE(IsClean(with_wait(5'000'000), "sync-data-loading"));
}

}  // namespace
}  // namespace stepscope
