#include "analysis/rules/rule_testing.h"
#include "support/cpu_loop.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::data_loading_test {
namespace {

Loop Loading(double batch_ms) {
  return {.batch_ms = batch_ms, .ops = Ops(40, 2.5)};
}

TEST(SyncDataLoadingTest, FiresAndPredictsAWorkersGain) {
  const Report report = Analyze(Simulate(Loading(37)).trace);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
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

// Of each load, 24 of 30 ms are in one function.
TEST(SyncDataLoadingTest, NamesTheLineThatTakesMostOfALoad) {
  GpuText run;
  const auto frame = [&](double from_ms, double to_ms, const char* name) {
    const auto at = [&](double ms) {
      return std::to_string(run.now_ns() + static_cast<int64_t>(ms * 1e6));
    };
    run.Line("python_frame " + at(from_ms) + ".." + at(to_ms) + " thread=0 " +
             name);
  };
  for (int step = 0; step < 5; ++step) {
    frame(0, 30, "data.py(12): __getitem__");
    frame(2, 26, "resize.py(301): zoom");
    run.Range(30'000,
              "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
              "kind=loader");
    run.Op(50'000, "aten::mm");
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "resize.py:301 in zoom");
}

TEST(SyncDataLoadingTest, NamesTheOpThatTakesMostOfALoad) {
  const auto evidence = [](int op_us) {
    GpuText run;
    for (int step = 0; step < 5; ++step) {
      run.Begin("range",
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                "kind=loader");
      run.Op(op_us, "aten::i0");
      run.Op(op_us, "aten::i0");
      run.Op(1'000, "aten::stack");
      run.Pass(29'000 - 2 * op_us);
      run.End();
      run.Op(50'000, "aten::mm");
      run.EndStep();
    }
    const Report report = run.Analyzed();
    const Finding* finding = Find(report, "sync-data-loading");
    return finding == nullptr ? "" : finding->evidence;
  };
  EXPECT_NE(evidence(8'000).find("aten::i0 alone takes 16.0 ms of that (2 "
                                 "calls per step): compute once"),
            std::string::npos)
      << evidence(8'000);
  EXPECT_EQ(evidence(3'000).find("alone takes"), std::string::npos);
}

// Steps of 50 ms with 20 ms of validation, which loads its own batch.
Report Validating(int load_ms, int open_ms) {
  GpuText run;
  run.Line("run usable_cores=4 training_thread=0");
  run.Line("loader kind=threads workers=0 train");
  run.Line("settings 1 step=0 intra_op_threads=1");
  const auto load = [&](int ms) {
    run.Range(ms * 1000,
              "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
              "kind=loader");
  };
  for (int step = 0; step < 6; ++step) {
    if (load_ms > 0) load(load_ms);
    run.Op(50'000, "aten::mm");
    run.Begin("range", "validate", "kind=phase");
    if (open_ms > 0) load(open_ms);
    run.Op(20'000, "aten::mm");
    run.End();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(SyncDataLoadingTest, AWorkerHasNoFirstBatchOfValidationReady) {
  const Report report = Validating(30, 30);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, 30, 2);
  EXPECT_NE(finding->evidence.find("30.0 ms of that loads the first batches"),
            std::string::npos)
      << finding->evidence;
}

TEST(SyncDataLoadingTest, FirstBatchesOfValidationAloneAreNoWorkersToMake) {
  const Report report = Validating(0, 30);
  EXPECT_FALSE(Promises(report, "sync-data-loading"));
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("would not help"), std::string::npos)
      << finding->evidence;
}

TEST(SyncDataLoadingTest, BatchesBehindAPassThatLoadsNothingAreNotItsOwn) {
  const Report report = Validating(30, 0);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 30, 2);
}

TEST(SyncDataLoadingTest, IgnoresLoadingBelowOnePerCentOfTheStep) {
  EXPECT_TRUE(
      IsClean(Analyze(Simulate(Loading(0.9)).trace), "sync-data-loading"));
  EXPECT_TRUE(
      Promises(Analyze(Simulate(Loading(1.3)).trace), "sync-data-loading"));
}

TEST(SyncDataLoadingTest, CannotLookWithoutLoaderRanges) {
  const Report report = Analyze(Simulate({.ops = Ops(10, 1)}).trace);
  EXPECT_NE(WhySkipped(report, "sync-data-loading").find("stepscope::Batches"),
            std::string::npos);
  EXPECT_NE(WhySkipped(report, "loader-bound"), "");
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

// One kernel lost its launch, so the replay gives no prediction.
TEST(SyncDataLoadingTest, IsABoundOnAGpuRunWithoutReplay) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..10000000 thread=0 number=0
    range 0..5000000 thread=0 kind=loader enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__
    runtime_call 5000000..5001000 thread=0 correlation=1 cudaLaunchKernel
    kernel 5002000..9000000 correlation=1 gemm
    kernel 9000000..10000000 gemm
  )"));
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_DOUBLE_EQ(finding->gain.expected_ms, 5);
  // The severity of a bound counts half of its value.
  EXPECT_EQ(finding->severity, FindingSeverity::kCritical);
  EXPECT_NE(finding->fix_python.find("pin_memory=True"), std::string::npos);
}

// Three GPU steps. Each decodes four samples and stacks them on the thread
// `loader`, uploads the batch, and runs the model for 4 ms.
Report Collating(int loader, double decode_us, std::string_view in_model = "") {
  GpuText run;
  for (int step = 0; step < 3; ++step) {
    run.OnThread(loader);
    for (int i = 0; i < 4; ++i) {
      run.Op(decode_us / 4 - 1, "aten::to",
             "inputs=(\"unsigned char\"[3,224,224])");
      run.Pass(1);
    }
    run.Op(10, "aten::stack");
    run.OnThread(0);
    run.Begin("op", "aten::to");
    run.Copy(10, "pinned", "device", 1000);
    run.End();
    run.Begin("op", "aten::conv2d");
    run.Kernel(4000, "gemm");
    run.End();
    if (!in_model.empty()) run.Op(4000, in_model);
    run.Synchronize("cudaEventSynchronize");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(SyncDataLoadingTest, SeesBatchesMadeWithoutALoader) {
  const Report report = Collating(0, 2000);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.2);
  EXPECT_NE(finding->fix_cpp.find("workers("), std::string::npos);
  EXPECT_NE(finding->evidence.find("collates samples. The GPU is idle because"),
            std::string::npos)
      << finding->evidence;
}

TEST(SyncDataLoadingTest, LeavesBatchesOfAnotherThreadToTheWorkers) {
  EXPECT_NE(WhySkipped(Collating(1, 2000), "sync-data-loading"), "");
}

TEST(SyncDataLoadingTest, DoesNotTakeTheModelsOwnStacksForBatches) {
  EXPECT_FALSE(Promises(Collating(0, 80, "aten::stack"), "sync-data-loading"));
}

TEST(SyncDataLoadingTest, DoesNotTakeStackedParametersForBatches) {
  const auto with = [](const char* backward) {
    GpuText run;
    for (int step = 0; step < 3; ++step) {
      run.Op(2000, "aten::stack", "sequence=7");
      run.Begin("op", "aten::bmm");
      run.Kernel(4000, "gemm");
      run.End();
      run.Begin("op", backward, "kind=backward sequence=7");
      run.Kernel(100, "split");
      run.End();
      run.Synchronize("cudaEventSynchronize");
      run.EndStep();
    }
    return run.Analyzed();
  };
  EXPECT_TRUE(Promises(with("AddBackward0"), "sync-data-loading"));
  EXPECT_FALSE(Promises(with("StackBackward0"), "sync-data-loading"));
}

TEST(SyncDataLoadingTest, IgnoresFastCollating) {
  EXPECT_FALSE(Promises(Collating(0, 150), "sync-data-loading"));
  EXPECT_TRUE(Promises(Collating(0, 300), "sync-data-loading"));
}

// Four steps of a CPU-only run: 4 ms of noise, then a product of 8 ms. If
// `node`, the noise is part of the graph. `first` runs before the noise.
Report Preparing(int64_t us, bool node = false, const std::string& first = "",
                 int64_t python_us = 0) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    const int at = 100 * i;
    const auto numbered = [&](int number, const std::string& name) {
      return "sequence=" + std::to_string(at + number) + " " + name;
    };
    if (!first.empty()) text.Op(numbered(0, first), 1'000);
    text.Op(numbered(0, "aten::normal_"), us);
    text.Op(numbered(node ? 1 : 0, "aten::mul"), 10);
    text.Op(numbered(1, "aten::addmm"), 8'000);
    text.Op("kind=backward " + numbered(1, "AddmmBackward0"), 10);
    text.EndStep();
    text.Pass(python_us);
  }
  return text.Analyzed();
}

TEST(SyncDataLoadingTest, SeesBatchesPreparedByOtherOps) {
  const Report report = Preparing(4'000);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr) << WhySkipped(report, "sync-data-loading");
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 4.01, 0.01);
}

TEST(SyncDataLoadingTest, CodeBeforeThoseOpsPreparesTheBatch) {
  const Report report = Preparing(1'000, false, "", 2'000);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.01 + 0.75 * 2, 0.01);
}

TEST(SyncDataLoadingTest, PreparationIsLowWhereNobodyKnowsTheCores) {
  EXPECT_EQ(Find(Preparing(4'000), "sync-data-loading")->severity,
            FindingSeverity::kLow);
}

TEST(SyncDataLoadingTest, ChoosingSamplesInMemoryIsNoPreparation) {
  const auto with = [](const std::string& first) {
    return Preparing(1, false, first);
  };
  EXPECT_FALSE(Promises(with("aten::index"), "sync-data-loading"));
  EXPECT_FALSE(Promises(with("aten::randperm"), "sync-data-loading"));
  EXPECT_TRUE(Promises(with("aten::sin"), "sync-data-loading"));
}

// One worker makes a batch in 20 ms. More workers would need cores of which
// nothing is known.
TEST(SyncDataLoadingTest, OneWorkerHidesNoMoreThanTheRestOfTheStep) {
  const Report report = Preparing(20'000);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 8.01, 0.01);
}

TEST(SyncDataLoadingTest, WhatTheModelComputesIsNoPreparation) {
  EXPECT_FALSE(Promises(Preparing(4'000, true), "sync-data-loading"));
  EXPECT_FALSE(
      Promises(Preparing(4'000, false, "aten::mm"), "sync-data-loading"));
}

// An in-process loader makes batches of 64 samples, each by `op` after
// `code_us` outside ops.
Report OneByOne(const std::string& op, int64_t code_us = 0) {
  CpuText text;
  for (int step = 0; step < 4; ++step) {
    text.Begin();
    for (int i = 0; i < 64; ++i) {
      text.Pass(code_us);
      text.Op(op, 40 - std::min<int64_t>(code_us, 38));
    }
    text.Op("inputs=((float[8],float[8])) aten::stack", 440);
    text.EndRange(
        "kind=loader enumerate(DataLoader)#_SingleProcessDataLoaderIter"
        ".__next__");
    text.Op("aten::mm", 3'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(SyncDataLoadingTest, SamplesFromMemoryNeedNoWorker) {
  const Report report = OneByOne("inputs=(float[999,8]) aten::select");
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
  EXPECT_NEAR(finding->gain.expected_ms, 3, 0.1);
  EXPECT_TRUE(
      finding->fix_python.starts_with("take a whole batch with one index"))
      << finding->fix_python;
  EXPECT_NE(finding->evidence.find("takes 64 samples one by one"),
            std::string::npos)
      << finding->evidence;
  // One index op copies the whole batch. A worker would have to copy it as
  // well.
  const Report whole = Analyze(TraceFromText(
      "step 0..9000000 thread=0\nrange 0..3000000 thread=0 kind=loader "
      "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\nop "
      "1000000..2900000 thread=0 aten::index\nop 3000000..9000000 thread=0 "
      "aten::mm\n"));
  EXPECT_EQ(Find(whole, "sync-data-loading")->severity, FindingSeverity::kLow);
  // Each sample is computed.
  const Report computed = OneByOne("inputs=(float[999,8]) aten::mul");
  EXPECT_NE(Find(computed, "sync-data-loading")->fix_python.find("num_workers"),
            std::string::npos);
}

// Each sample is a torch.tensor() of a short list. Reading a file takes longer.
TEST(SyncDataLoadingTest, SamplesFromNumbersNeedNoWorker) {
  const std::string convert = "inputs=(float[8]) aten::lift_fresh";
  const Report report = OneByOne(convert, 10);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("makes 64 samples one by one from Python "
                                   "numbers"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(finding->fix_python.starts_with("make tensors of all samples"))
      << finding->fix_python;
  const Report read = OneByOne(convert, 200);
  EXPECT_NE(Find(read, "sync-data-loading")->fix_python.find("num_workers"),
            std::string::npos);
}

}  // namespace
}  // namespace stepscope::data_loading_test
