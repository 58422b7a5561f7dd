#include <cmath>

#include "rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::stalls_test {
namespace {

// Twenty CPU steps of 10 ms. Those in `slow` take 10 ms longer; `extra` adds
// what they do.
template <typename Extra>
Report SlowSteps(std::initializer_list<int> slow, Extra extra) {
  GpuText run;
  for (int step = 0; step < 20; ++step) {
    run.Op(10'000, "aten::mm");
    if (std::ranges::count(slow, step)) extra(run, step);
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(CheckpointStallTest, FiresOnARangeNamedForIt) {
  const Report report = SlowSteps(
      {5, 15}, [](GpuText& run, int) { run.Range(10'000, "save_checkpoint"); });
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "save_checkpoint");
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  // Two stalls of 10 ms in 20 steps.
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_NE(finding->evidence.find("2 steps of 20"), std::string::npos);
}

TEST(CheckpointStallTest, FiresOnWritesThatOtherStepsDoNotDo) {
  const Report report = SlowSteps({5, 15}, [](GpuText& run, int step) {
    run.Pass(10'000);
    run.Line("host_usage " + std::to_string(run.now_ns() - 1000) + ".." +
             std::to_string(run.now_ns()) + " step=" + std::to_string(step) +
             " write_bytes=50000000");
  });
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("wrote 100 MB"), std::string::npos)
      << finding->evidence;
}

// For example, writing images to a file.
TEST(CheckpointStallTest, BlamesThePauseAfterAnOpOfItsOwn) {
  const Report report = SlowSteps({5, 15}, [](GpuText& run, int) {
    run.Op(10, "aten::clone");
    run.Pass(10'000);
  });
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_NE(finding->evidence.find("after aten::clone, which the other steps "
                                   "do not run there"),
            std::string::npos)
      << finding->evidence;
  // After an op that all steps run, a pause may have any cause.
  const Report other =
      SlowSteps({5, 15}, [](GpuText& run, int) { run.Pass(10'000); });
  EXPECT_TRUE(IsClean(other, "logging-checkpoint-stall"));
}

TEST(CheckpointStallTest, FiresOnceOnlyIfTheParametersAreCopied) {
  const auto copies = [](std::string_view dims) {
    GpuText run;
    for (int step = 0; step < 20; ++step) {
      run.Begin("op", "torch::autograd::AccumulateGrad",
                "kind=backward inputs=(float[" + std::string(dims) + "])");
      run.Kernel(5000, "gemm");
      run.End();
      run.Synchronize();
      if (step == 10) {
        run.BlockingCopy(2000, "device", "pageable", 4'000'000);
        run.Pass(10'000);
      }
      run.EndStep();
    }
    return run.Analyzed();
  };
  EXPECT_NE(Find(copies("1000,1000"), "logging-checkpoint-stall"), nullptr);
  EXPECT_TRUE(IsClean(copies("1000,4000"), "logging-checkpoint-stall"));
}

TEST(CheckpointStallTest, FiresOnSavingInEveryStep) {
  const auto saving = [](const char* range, const char* bytes) {
    GpuText run;
    for (int step = 0; step < 10; ++step) {
      run.Op(10'000, "aten::mm");
      run.Range(2'000, range);
      run.Line("host_usage " + std::to_string(run.now_ns() - 1000) + ".." +
               std::to_string(run.now_ns()) + " step=" + std::to_string(step) +
               " write_bytes=" + bytes);
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = saving("save checkpoint", "50000000");
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "save checkpoint");
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_NE(finding->evidence.find("writes 50.0 MB"), std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(
      IsClean(saving("log metrics", "50000000"), "logging-checkpoint-stall"));
  EXPECT_TRUE(
      IsClean(saving("save checkpoint", "5000"), "logging-checkpoint-stall"));
  EXPECT_TRUE(
      IsClean(saving("augment", "50000000"), "logging-checkpoint-stall"));
}

// state_dict() and torch.save() look like this without a range or a stack.
TEST(CheckpointStallTest, SeesSavingByReadsOfAllParametersAndAPause) {
  const auto run = [](int reads, double pause_us,
                      const std::string& behind = "") {
    GpuText text;
    for (int step = 0; step < 8; ++step) {
      text.Op(10'000, "aten::mm");
      for (int i = 0; i < reads; ++i) text.Op(2, "aten::detach");
      for (int i = 0; i < reads && !behind.empty(); ++i) text.Op(2, behind);
      text.Pass(pause_us);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report report = run(6, 5'000);
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 5,
              0.7);  // no op follows the last step
  EXPECT_NE(finding->evidence.find("6 ops in a row"), std::string::npos)
      << finding->evidence;
  // No other rule reports this code.
  EXPECT_TRUE(IsClean(report, "python-between-ops"));
  // A few logged tensors, and averages that are kept without a pause.
  EXPECT_TRUE(IsClean(run(3, 5'000), "logging-checkpoint-stall"));
  EXPECT_FALSE(IsClean(run(3, 5'000), "python-between-ops"));
  EXPECT_TRUE(IsClean(run(6, 400), "logging-checkpoint-stall"));
  // A target network gets the weights, and then the program does other work.
  const Report copied = run(6, 5'000, "aten::copy_");
  EXPECT_TRUE(IsClean(copied, "logging-checkpoint-stall"));
  EXPECT_FALSE(IsClean(copied, "python-between-ops"));
}

TEST(CheckpointStallTest, TheBoundIncludesWhatFollowsAStall) {
  const auto saving = [](int after_us) {
    GpuText run;
    for (int step = 0; step < 24; ++step) {
      run.Op(10'000, "aten::mm");
      if (step % 4 == 2) run.Range(10'000, "save_checkpoint");
      if (step % 4 == 3) run.Pass(after_us);
      run.EndStep();
    }
    return run.Analyzed();
  };
  EXPECT_NEAR(Find(saving(0), "logging-checkpoint-stall")->gain.expected_ms,
              2.5, 0.01);
  EXPECT_NEAR(Find(saving(1'500), "logging-checkpoint-stall")->gain.expected_ms,
              2.5 + 1.5 / 4, 0.01);
}

// Stalls alternate between 8 and 12 ms. With six stalls, the true mean may be
// 2.2 ms higher.
TEST(CheckpointStallTest, TheBoundCoversTheErrorOfAMeanOfFewStalls) {
  GpuText run;
  for (int step = 0; step < 24; ++step) {
    run.Op(10'000, "aten::mm");
    if (step % 4 == 2) {
      run.Range(step % 8 == 2 ? 8'000 : 12'000, "save_checkpoint");
    }
    run.EndStep();
  }
  // Student's t for five degrees of freedom times the standard error.
  const double more = 2.571 * 2.191 / std::sqrt(6);
  EXPECT_NEAR(
      Find(run.Analyzed(), "logging-checkpoint-stall")->gain.expected_ms,
      (10 + more) / 4, 0.01);
}

// Thirty training steps of 10 ms with two parameters. Every third step runs
// aten::detach `detaches` times and then no op for 30 ms, as torch.save() does
// without stacks.
Report Saving(int detaches) {
  GpuText run;
  for (int step = 0; step < 30; ++step) {
    run.Op(9'000, "aten::mm");
    for (int i = 0; i < 2; ++i) {
      run.Begin("op", "torch::autograd::AccumulateGrad", "kind=backward");
      run.Pass(500);
      run.End();
    }
    if (step % 3 == 2) {
      for (int i = 0; i < detaches; ++i) run.Op(1, "aten::detach");
      run.Pass(30'000);
    }
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(CheckpointStallTest, KnowsSavingByWhatItReads) {
  const Report report = Saving(2);
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 10, 0.01);
  EXPECT_NEAR(finding->baseline_ms, 20, 0.01);
  EXPECT_NE(finding->evidence.find("10 steps of 30 (every 3rd step) took 30.0 "
                                   "ms longer"),
            std::string::npos)
      << finding->evidence;
  // Something else reads one of the two parameters; the pause may have any
  // cause.
  const Report other = Saving(1);
  finding = Find(other, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->evidence.find("what the model holds"), std::string::npos);
}

// If usual steps lack a range, the range explains the stall, whatever its name.
TEST(CheckpointStallTest, NamesWorkThatOnlySlowStepsDo) {
  const auto run = [](const char* usual) {
    GpuText run;
    for (int step = 0; step < 20; ++step) {
      run.Op(10'000, "aten::mm");
      run.Range(100, usual);
      if (step % 10 == 5) run.Range(10'000, "plot");
      run.EndStep();
    }
    return run.Analyzed();
  };
  const Report report = run("metrics");
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->where, "plot");
  EXPECT_NEAR(finding->gain.expected_ms, 1, 0.01);
  EXPECT_TRUE(IsClean(run("plot"), "logging-checkpoint-stall"));
}

TEST(CheckpointStallTest, StaysSilentAboutOneSlowStep) {
  EXPECT_TRUE(
      IsClean(SlowSteps({7}, [](GpuText& run, int) { run.Pass(10'000); }),
              "logging-checkpoint-stall"));
  EXPECT_TRUE(IsClean(
      SlowSteps(
          {7}, [](GpuText& run, int) { run.Range(10'000, "save_checkpoint"); }),
      "logging-checkpoint-stall"));
}

TEST(CheckpointStallTest, LeavesGarbageCollectionAndLoadersAlone) {
  EXPECT_TRUE(IsClean(SlowSteps({5, 15},
                                [](GpuText& run, int) {
                                  run.Begin("range", "log");
                                  run.Range(9000, "Python GC");
                                  run.Pass(1000);
                                  run.End();
                                }),
                      "logging-checkpoint-stall"));
  EXPECT_TRUE(IsClean(
      SlowSteps({5, 15},
                [](GpuText& run, int) {
                  run.Begin("range", "log");
                  run.Range(9000,
                            "enumerate(DataLoader)#_MultiProcessingDataLoader"
                            "Iter.__next__",
                            "kind=loader");
                  run.Pass(1000);
                  run.End();
                }),
      "logging-checkpoint-stall"));
}

TEST(CheckpointStallTest, ReadsWholeWordsOnly) {
  const auto confidence = [](const char* range) {
    const Report report = SlowSteps(
        {5, 15}, [=](GpuText& run, int) { run.Range(10'000, range); });
    return Find(report, "logging-checkpoint-stall")->confidence;
  };
  EXPECT_EQ(confidence("load catalog"), Confidence::kHint);
  EXPECT_EQ(confidence("write log"), Confidence::kStrong);
}

// Steps 2, 7 and 12 of 14 save, for `ms` each.
Report Saving(const std::vector<int>& ms) {
  GpuText run;
  size_t next = 0;
  for (int step = 0; step < 14; ++step) {
    run.Op(10'000, "aten::mm");
    if (step % 5 == 2) run.Range(1000 * ms[next++], "save_checkpoint");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(CheckpointStallTest, UsesThePeriodInPlaceOfTheCount) {
  const Report report = Saving({10, 10, 10});
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 10.0 / 5, 0.01);  // not 30 / 14
  EXPECT_NEAR(finding->baseline_ms, 10 + 10.0 / 5, 0.01);
}

TEST(CheckpointStallTest, StallsOfUnequalLengthBoundTheirMeanLoosely) {
  const Report report = Saving({8, 10, 12});
  const Finding* finding = Find(report, "logging-checkpoint-stall");
  ASSERT_NE(finding, nullptr);
  // Student's t for two degrees of freedom: 4.303 * 2 / sqrt(3), around a mean
  // of 10 ms.
  EXPECT_NEAR(finding->gain.expected_ms, (10 + 4.969) / 5, 0.01);
}

// Another rank is late in step 7. The thread waits outside of ops, which must
// not count as a pause of its own.
TEST(StallsTest, BlamesAWaitForOtherRanks) {
  const auto why = [](double wait_us, double op_us) {
    GpuText run;
    for (int step = 0; step < 10; ++step) {
      const bool slow = step == 7;
      run.Op(10'000 + (slow ? op_us : 0), "aten::mm");
      const double us = 2'000 + (slow ? wait_us : 0);
      run.Line("range " + std::to_string(run.now_ns()) + ".." +
               std::to_string(run.now_ns() + std::llround(us * 1e3)) +
               " thread=1 kind=collective gloo:all_reduce");
      run.Pass(us);
      run.EndStep();
    }
    return run.Analyzed().step_times[7].why;
  };
  EXPECT_EQ(why(12'000, 0), "spends 12.0 ms more on collectives");
  // Such waits must explain half of the excess.
  EXPECT_EQ(why(6'100, 5'900), "spends 6.10 ms more on collectives");
  EXPECT_EQ(why(5'900, 6'100), "spends 6.10 ms more in aten::mm");
}

}  // namespace
}  // namespace stepscope::stalls_test
