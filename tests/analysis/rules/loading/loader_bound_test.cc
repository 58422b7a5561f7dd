#include <gmock/gmock.h>

#include <set>
#include <string>

#include "analysis/rules/rule_testing.h"
#include "support/cpu_loop.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::loader_bound_test {
namespace {

Loop Loading(double batch_ms) {
  return {.batch_ms = batch_ms, .ops = Ops(40, 2.5)};
}

TEST(LoaderBoundTest, FiresWhenOneWorkerIsTooSlow) {
  Loop loop = Loading(250);
  loop.workers = 1;
  loop.cores = 8;
  loop.warmup = 12;
  const Report report = Analyze(Simulate(loop).trace);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
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

// Two workers that finish together deliver two batches every 600 ms. Their
// number was not recorded. The steps read the loss, which keeps the GPU busy
// for 200 ms.
TEST(LoaderBoundTest, LateWorkersLeaveNothingToGainByReadingLater) {
  GpuText run;
  for (int step = 0; step < 4; ++step) {
    run.Range(step % 2 == 1 ? 200'000 : 100,
              "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
              "kind=loader");
    run.Begin("op", "aten::mm");
    run.Kernel(200'000, "gemm");
    run.End();
    run.Item();
    run.EndStep();
  }
  const Report late = run.Analyzed();
  EXPECT_TRUE(Promises(late, "loader-bound"));
  EXPECT_FALSE(Promises(late, "host-sync"));
}

// Sixteen CPU steps of 100 ms with four workers and a wait of `wait_ms(step)`
// in each. `more` adds lines to a step.
template <typename Wait, typename More>
Report Waiting(Wait wait_ms, More more) {
  GpuText run;
  run.Line("loader kind=processes workers=4 train");
  for (int step = 0; step < 16; ++step) {
    more(run, step);
    run.Range(wait_ms(step) * 1000,
              "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
              "kind=loader");
    run.Op(100'000, "aten::mm");
    run.EndStep();
  }
  return run.Analyzed();
}
constexpr auto kNothingMore = [](GpuText&, int) {};

TEST(LoaderBoundTest, NamesTheBeatOfWorkersThatFinishTogether) {
  const Report report =
      Waiting([](int step) { return step % 4 == 3 ? 60 : 0.1; }, kNothingMore);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("every 4th step"), std::string::npos);
  EXPECT_NEAR(finding->gain.expected_ms, 15, 0.2);
}

TEST(LoaderBoundTest, StaysSilentAboutABeatBelowFivePerCent) {
  EXPECT_TRUE(IsClean(
      Waiting([](int step) { return step % 4 == 3 ? 15 : 0.1; }, kNothingMore),
      "loader-bound"));
}

TEST(LoaderBoundTest, StaysSilentAboutSingleWaits) {
  EXPECT_TRUE(IsClean(
      Waiting([](int step) { return step == 6 ? 60 : 0.1; }, kNothingMore),
      "loader-bound"));
}

// 29 steps of 100 ms, which only the optimizer marks. The steps in `waits` wait
// for 90 ms for a loader. `loader` is all that is known about the loader.
Report WaitingIn(const std::set<int>& waits, double usual_ms = 0.1,
                 const std::string& loader = "") {
  GpuText run;
  if (!loader.empty()) run.Line(loader);
  for (int step = 0; step < 29; ++step) {
    run.Range((waits.contains(step) ? 90 : usual_ms) * 1000, "next_batch",
              "kind=loader");
    run.Op(100'000, "aten::mm");
    run.EndStep();
  }
  return run.Analyzed();
}

// The median step does not wait, and no k-th step always waits.
TEST(LoaderBoundTest, LostTimeDecidesWhateverItsPattern) {
  const Report report = WaitingIn({2, 3, 5, 9, 10, 11, 15, 18, 19, 23, 26, 27});
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 12 * 90.0 / 29, 0.2);
  EXPECT_NE(finding->evidence.find("in 12 steps of 29"), std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(report, "sync-data-loading"));
}

TEST(LoaderBoundTest, AdvisesALongerQueueThanTheRecordedOne) {
  const auto fix = [](const std::string& loader) {
    const Report report =
        WaitingIn({2, 3, 5, 9, 10, 11, 15, 18, 19, 23, 26, 27}, 0.1, loader);
    const Finding* finding = Find(report, "loader-bound");
    return finding == nullptr ? "" : finding->fix_python;
  };
  EXPECT_THAT(fix(""), ::testing::HasSubstr("; try prefetch_factor=4, or"));
  EXPECT_THAT(fix("loader kind=processes workers=4 prefetch_factor=2 train"),
              ::testing::HasSubstr("; try prefetch_factor=4 (now 2), or"));
  EXPECT_THAT(fix("loader kind=processes workers=4 prefetch_factor=8 train"),
              ::testing::HasSubstr("; try prefetch_factor=16 (now 8), or"));
}

TEST(LoaderBoundTest, TwoLateBatchesAreNoHabit) {
  EXPECT_TRUE(IsClean(WaitingIn({5, 18}), "loader-bound"));
}

// If every batch takes time, the training thread makes it.
TEST(LoaderBoundTest, LeavesAnUnknownLoaderThatAlwaysWaitsToItsRule) {
  const Report report = WaitingIn({2, 3, 5, 9, 10, 11}, 30);
  EXPECT_TRUE(IsClean(report, "loader-bound"));
  EXPECT_NE(Find(report, "sync-data-loading"), nullptr);
}

TEST(LoaderBoundTest, TellsWhatRestartingWorkersCosts) {
  const auto wait = [](int step) { return step % 8 == 0 ? 90 : 0.1; };
  const Report report = Waiting(wait, [](GpuText& run, int step) {
    if (step % 8 == 0) {
      run.Begin("python_frame",
                "torch/utils/data/dataloader.py(440): __iter__");
      run.Pass(10);
      run.End();
    }
  });
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("persistent_workers=True"),
            std::string::npos);
  // One restart of 90 ms in 16 steps. The first batch of the run does not
  // count.
  EXPECT_NEAR(finding->gain.expected_ms, 90.0 / 16, 0.1);
  EXPECT_TRUE(IsClean(Waiting(wait, kNothingMore), "loader-bound"));
}

// Who draws a seed at the end of an epoch. There are no stacks.
enum class Draws { kLoaderAndSampler, kLoader, kSampler };

Report Epoch(Draws draws) {
  return Waiting([](int) { return 1; },
                 [&](GpuText& run, int step) {
                   if (step != 8) return;
                   const auto load = [&](int64_t us) {
                     run.Range(us,
                               "enumerate(DataLoader)#_"
                               "MultiProcessingDataLoaderIter.__next__",
                               "kind=loader");
                   };
                   load(10'000);  // the old workers stop
                   if (draws != Draws::kSampler) {
                     run.Op(20, "aten::random_", "inputs=(long int[])");
                     run.Pass(25'000);  // the new workers are forked
                   }
                   if (draws != Draws::kLoader) {
                     run.Op(20, "aten::random_", "inputs=(long int[])");
                   }
                   run.Op(20, "aten::randperm");
                   load(45'000);
                 });
}

TEST(LoaderBoundTest, KnowsRestartedWorkersByTheirSeed) {
  const Report report = Epoch(Draws::kLoaderAndSampler);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->fix_python, "DataLoader(..., persistent_workers=True)");
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  // From the last batch of the old workers to the first batch of the new ones.
  EXPECT_NEAR(finding->gain.expected_ms, 80.0 / 16, 0.3);
  // The sampler has its own generator.
  EXPECT_FALSE(IsClean(Epoch(Draws::kLoader), "loader-bound"));
  // The workers stay alive.
  EXPECT_TRUE(IsClean(Epoch(Draws::kSampler), "loader-bound"));
}

// A pause, in which living workers would have made batches, then a wait. The
// loader's ops were not recorded.
TEST(LoaderBoundTest, KnowsRestartedWorkersByThePauseBefore) {
  const auto run = [](int64_t pause_us, int64_t usual_us = 0) {
    return Waiting([](int step) { return step % 8 == 0 ? 90 : 0.1; },
                   [&](GpuText& run, int step) {
                     run.Op(100, "aten::add");
                     run.Pass(step % 8 == 0 ? pause_us : usual_us);
                   });
  };
  const Report report = run(60'000);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->fix_python, "DataLoader(..., persistent_workers=True)");
  EXPECT_TRUE(IsClean(run(0), "loader-bound"));
  // The program pauses in every step.
  EXPECT_TRUE(IsClean(run(60'000, 30'000), "loader-bound"));
}

// One step waits for its first validation batch.
TEST(LoaderBoundTest, MoreWorkersDoNotOpenAValidationPassSooner) {
  const auto run = [](double wait_ms) {
    return Waiting([](int) { return 0.1; },
                   [&](GpuText& run, int) {
                     run.Begin("range", "validate", "kind=phase");
                     run.Range(static_cast<int64_t>(wait_ms * 1000),
                               "enumerate(DataLoader)#_"
                               "MultiProcessingDataLoaderIter.__next__",
                               "kind=loader");
                     run.Op(20'000, "aten::mm");
                     run.End();
                   });
  };
  const Report report = run(40);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 40, 1);
  EXPECT_NE(finding->evidence.find("validation with no batch ready"),
            std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(finding->settings.empty());
  EXPECT_TRUE(IsClean(run(1), "loader-bound"));
}

TEST(LoaderBoundTest, NamesStorage) {
  const Report report =
      Waiting([](int) { return 40; },
              [](GpuText& run, int step) {
                run.Line("host_usage " + std::to_string(run.now_ns()) + ".." +
                         std::to_string(run.now_ns() + 140'000'000) +
                         " step=" + std::to_string(step) +
                         " process_cpu_ns=100000000 loader_cpu_ns=100000000 "
                         "loader_read_bytes=50000000");
              });
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("read 50.0 MB per step"), std::string::npos)
      << finding->evidence;
}

TEST(LoaderBoundTest, SaysOnAGpuRunThatFullCoresLeaveNoRoom) {
  GpuText run;
  run.Line("run usable_cores=2 full");
  run.Line("loader kind=processes workers=2 train");
  for (int step = 0; step < 3; ++step) {
    run.Line("host_usage " + std::to_string(run.now_ns()) + ".." +
             std::to_string(run.now_ns() + 10'000'000) +
             " step=" + std::to_string(step) +
             " process_cpu_ns=5000000 loader_cpu_ns=14500000");
    run.Range(5000,
              "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
              "kind=loader");
    run.Kernel(4990, "gemm");
    run.Synchronize("cudaEventSynchronize");
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("more workers cannot help"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->fix_python.find("num_workers"), std::string::npos);
}

// Taking a finished batch takes time, too.
TEST(LoaderBoundTest, IgnoresEqualShortWaits) {
  const auto with = [](double ms, double more) {
    GpuText run;
    run.Line("loader kind=processes workers=4 train");
    for (int step = 0; step < 16; ++step) {
      run.Range((ms + (step % 2) * more) * 1000,
                "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                "kind=loader");
      run.Op(5'000, "aten::mm");
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report equal = with(1.2, 0.1);
  const Finding* finding = Find(equal, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kLow);
  EXPECT_NE(finding->fix_python.find("fewer and larger batches"),
            std::string::npos);
  EXPECT_EQ(Find(with(0.3, 3), "loader-bound")->severity,
            FindingSeverity::kMedium);
  EXPECT_EQ(Find(with(2.2, 0.1), "loader-bound")->severity,
            FindingSeverity::kMedium);
}

TEST(LoaderBoundTest, IsAHintIfFreeCoresAreUnknown) {
  const auto wait = [](int) { return 60.0; };
  const Report report = Waiting(wait, kNothingMore);
  const Finding* finding = Find(report, "loader-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->assumption.find("--cores N"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::loader_bound_test
