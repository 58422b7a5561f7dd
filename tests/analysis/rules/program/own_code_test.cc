#include "analysis/rules/rule_testing.h"
#include "support/cpu_text.h"
#include "support/gpu_text.h"

namespace stepscope::own_code_test {
namespace {

// Steps with ops of 10 ms, and a pause of `us` in every `every`-th step.
Report WithPause(int64_t us, int every = 1, const std::string& around = "",
                 const std::string& next = "aten::relu") {
  CpuText text;
  for (int i = 0; i < 6; ++i) {
    text.Op("aten::mm", 5'000);
    text.Begin();
    if (i % every == 0) text.Pass(us);
    if (!around.empty()) text.EndRange(around);
    text.Op(next, 5'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PythonBetweenOpsTest, NamesTheOpsAroundThePause) {
  const Report report = WithPause(2'000);
  const Finding* finding = Find(report, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 2, 0.01);
  EXPECT_EQ(finding->where, "between aten::mm and aten::relu");
  EXPECT_NE(finding->fix_python.find("with_stack=True"), std::string::npos);
}

// A replay buffer draws tuples from a list, and stacks their tensors.
TEST(PythonBetweenOpsTest, AdvisesToIndexSamplesInsteadOfStackingThem) {
  const Report report = WithPause(2'000, 1, "", "aten::stack");
  const Finding* finding = Find(report, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->fix_python.find("field[rows]"), std::string::npos);
  const Report other = WithPause(2'000);
  EXPECT_EQ(Find(other, "python-between-ops")->fix_python.find("field[rows]"),
            std::string::npos);
}

// In the pause, 700 frames are 1 us apart, so recording one costs 2 us.
TEST(PythonBetweenOpsTest, LeavesOutWhatRecordingFramesCosts) {
  const auto report = [](bool frames) {
    std::string head =
        "run producer=torch.profiler\nop 1..7 thread=0 aten::view\n";
    for (int i = 0; frames && i < 6 * 700; ++i) {
      const int us = 5'001 + 12'100 * (i / 700) + 3 * (i % 700);
      head += "python_frame " + std::to_string(us) + "000.." +
              std::to_string(us + 2) + "000 thread=0 train.py(3): f\n";
    }
    head += "python_frame 0..80000000 thread=0 train.py(1): main\n";
    CpuText text(head);
    for (int i = 0; i < 6; ++i) {
      text.Op("aten::mm", 5'000, 2'100);
      text.Op("aten::relu", 5'000);
      text.EndStep();
    }
    return text.Analyzed();
  };
  const Report without = report(false);
  const Finding* finding = Find(without, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  EXPECT_GT(finding->gain.expected_ms, 2);
  EXPECT_TRUE(IsClean(report(true), "python-between-ops"));
}

TEST(PythonBetweenOpsTest, SaysCallsInsteadOfStepsIfNothingIsTrained) {
  const auto found = [](const std::string& last_op) {
    CpuText text;
    for (int i = 0; i < 6; ++i) {
      text.Op("aten::mm", 5'000, 2'000);
      text.Op(last_op, 5'000);
      text.EndStep();
    }
    const Report report = text.Analyzed();
    const Finding* finding = Find(report, "python-between-ops");
    return finding == nullptr ? Finding() : *finding;
  };
  const Finding runs = found("aten::relu");
  EXPECT_TRUE(runs.fix_cpp.starts_with("keep what does not change between "));
  EXPECT_EQ(runs.fix_cpp.find("metrics"), std::string::npos);
  EXPECT_NE(runs.assumption.find("only runs the model"), std::string::npos);
  EXPECT_NE(runs.wrong_if.find("the next request"), std::string::npos);
  const Finding trains = found("kind=backward MmBackward0");
  EXPECT_NE(trains.fix_cpp.find("loader workers"), std::string::npos);
  EXPECT_EQ(trains.assumption.find("only runs the model"), std::string::npos);
  EXPECT_EQ(trains.wrong_if.find("request"), std::string::npos);
}

TEST(PythonBetweenOpsTest, NeedsATenthOfTheStep) {
  EXPECT_TRUE(IsClean(WithPause(1'050), "python-between-ops"));
  EXPECT_FALSE(IsClean(WithPause(1'200), "python-between-ops"));
}

TEST(PythonBetweenOpsTest, LeavesAPauseInSomeStepsToStalls) {
  EXPECT_TRUE(IsClean(WithPause(4'000, /*every=*/3), "python-between-ops"));
}

// A pause of 2 ms in each step, but before a different op each time.
TEST(PythonBetweenOpsTest, IgnoresPausesAtChangingPlaces) {
  const auto interrupted = [](bool anywhere) {
    const char* const kOps[] = {"aten::relu", "aten::tanh", "aten::exp"};
    CpuText text;
    for (int i = 0; i < 6; ++i) {
      text.Op("aten::mm", 5'000);
      for (int k = 0; k < 3; ++k) {
        if (k == (anywhere ? i % 3 : 0)) text.Pass(2'000);
        text.Op(kOps[k], 2'000);
      }
      text.EndStep();
    }
    return text.Analyzed();
  };
  EXPECT_TRUE(IsClean(interrupted(true), "python-between-ops"));
  EXPECT_FALSE(IsClean(interrupted(false), "python-between-ops"));
}

// Nine steps of 80 ms on a GPU that waits for the host. In six of them, a pause
// follows the op `place(step)`.
template <typename Place>
Report Interrupted(int64_t us, Place place) {
  GpuText run;
  for (int step = 0; step < 9; ++step) {
    for (int i = 0; i < 8; ++i) {
      run.Begin("op", "aten::mm" + std::to_string(i));
      run.Kernel(10'000, "gemm");
      run.End();
      if (step % 3 > 0 && i == place(step)) {
        run.Item();
        run.Pass(us);
      }
    }
    run.Item();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(PythonBetweenOpsTest, HintsAtTheCollectorForLongPausesAtChangingPlaces) {
  const auto anywhere = [](int step) { return (5 * step) % 7; };
  const Report report = Interrupted(60'000, anywhere);
  const Finding* finding = Find(report, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NEAR(finding->gain.expected_ms, 60 * 6 / 9.0, 3);
  EXPECT_NE(finding->evidence.find("6 times in 9 steps"), std::string::npos)
      << finding->evidence;
  EXPECT_NE(finding->fix_python.find("gc.freeze()"), std::string::npos);
  EXPECT_EQ(Find(Interrupted(20'000, anywhere), "python-between-ops"), nullptr);
  // Only in three steps, but always at the same place: a stall.
  const auto there = [](int step) { return step % 3 == 1 ? 3 : -1; };
  EXPECT_EQ(Find(Interrupted(60'000, there), "python-between-ops"), nullptr);
}

TEST(PythonBetweenOpsTest, LeavesSavingAndLoadingToTheirRules) {
  EXPECT_TRUE(IsClean(WithPause(2'000, 1, "kind=user save_checkpoint"),
                      "python-between-ops"));
  EXPECT_TRUE(IsClean(
      WithPause(2'000, 1,
                "kind=loader "
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
      "python-between-ops"));
}

TEST(PythonBetweenOpsTest, IgnoresShortGaps) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 50; ++k) text.Op("aten::relu", 100, 50);
    text.EndStep();
  }
  EXPECT_TRUE(IsClean(text.Analyzed(), "python-between-ops"));
}

// Steps of 1.5 ms that end with a pause of `us`.
Report AtTheMark(int64_t us, const std::string& head = "") {
  CpuText text(head);
  for (int i = 0; i < 6; ++i) {
    text.Op("aten::mm", 1'500, us);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PythonBetweenOpsTest, IgnoresAShortPauseAtTheStepMark) {
  EXPECT_TRUE(IsClean(AtTheMark(600), "python-between-ops"));
  EXPECT_FALSE(IsClean(AtTheMark(601), "python-between-ops"));
}

// Steps of about 1.5 ms with a pause of `us` before and after backward.
Report AroundBackward(int64_t us) {
  CpuText text;
  for (int i = 0; i < 6; ++i) {
    text.Op("aten::mse_loss", 500, us);
    text.Op("aten::ones_like", 10);
    text.Op("autograd::engine::evaluate_function: MseLossBackward0", 500, us);
    text.Op("aten::_foreach_norm", 500);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PythonBetweenOpsTest, IgnoresShortPausesAroundBackward) {
  EXPECT_TRUE(IsClean(AroundBackward(600), "python-between-ops"));
  const Report report = AroundBackward(601);
  const Finding* finding = Find(report, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 1.202, 0.01);
}

// Steps with a pause of 2 ms in the optimizer's range, followed by the op
// `after`.
Report InOptimizer(const std::string& after) {
  CpuText text;
  for (int i = 0; i < 6; ++i) {
    text.Op("aten::mm", 1'000, 100);
    text.Begin();
    text.Pass(2'000);
    text.Op(after, 1'000);
    text.EndRange("kind=optimizer Optimizer.step#SGD.step");
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PythonBetweenOpsTest, IgnoresThePreparationsOfTheOptimizer) {
  EXPECT_TRUE(IsClean(InOptimizer("aten::_fused_sgd_"), "python-between-ops"));
  // A closure that trains inside the optimizer's step.
  EXPECT_FALSE(IsClean(InOptimizer("aten::linear"), "python-between-ops"));
}

// Steps in which `call` spends 2 ms after its last op; then `us` of host code
// follow.
Report AfterCall(const std::string& call, int64_t us) {
  CpuText text;
  for (int i = 0; i < 6; ++i) {
    text.Op("aten::mm", 5'000);
    text.Begin();
    text.Op("aten::add_", 100);
    text.Pass(2'000);
    text.EndRange("kind=optimizer " + call);
    text.Pass(us);
    text.Op("aten::relu", 5'000);
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PythonBetweenOpsTest, IgnoresTheReleasesOfTheOptimizer) {
  for (const char* call :
       {"Optimizer.zero_grad#SGD.zero_grad", "Optimizer.step#SGD.step"}) {
    EXPECT_TRUE(IsClean(AfterCall(call, 10), "python-between-ops")) << call;
    const Report report = AfterCall(call, 1'500);
    const Finding* finding = Find(report, "python-between-ops");
    ASSERT_NE(finding, nullptr) << call;
    EXPECT_NEAR(finding->gain.expected_ms, 1.5, 0.01) << call;
  }
}

TEST(PythonBetweenOpsTest, IsSkippedIfEventsWereLost) {
  EXPECT_FALSE(WhySkipped(AtTheMark(1'000, "loss count=3 detail=gone x\n"),
                          "python-between-ops")
                   .empty());
}

// Notes, and losses of other events, hide no op.
TEST(PythonBetweenOpsTest, LooksWhereOnlyOtherEventsWereLost) {
  for (const char* loss :
       {"loss count=1 severity=note detail=skipped unknown-events\n",
        "loss count=-1 severity=warning detail=none cupti-unavailable\n",
        "loss count=2 severity=warning detail=odd stacks-differ\n"}) {
    EXPECT_TRUE(
        WhySkipped(AtTheMark(1'000, loss), "python-between-ops").empty())
        << loss;
  }
  EXPECT_FALSE(
      WhySkipped(
          AtTheMark(1'000,
                    "loss count=2 severity=note detail=x unpaired-events\n"),
          "python-between-ops")
          .empty());
}

TEST(PythonBetweenOpsTest, LeavesOnlyShortGapsToLaunchBound) {
  CpuText text;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 250; ++k) text.Op("aten::relu", 100, 100);
    text.EndStep();
  }
  const Report report = text.Analyzed();
  EXPECT_NE(Find(report, "python-between-ops"), nullptr);
  EXPECT_TRUE(IsClean(report, "launch-bound"));
}

TEST(PythonBetweenOpsTest, NamesTheFunctionWhereStacksWereRecorded) {
  std::string text;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t at = i * 10'000'000;
    const auto when = [&](int64_t begin_ms, int64_t end_ms) {
      return std::to_string(at + begin_ms * 1'000'000) + ".." +
             std::to_string(at + end_ms * 1'000'000) + " thread=0 ";
    };
    text += "step " + when(0, 10) + "number=" + std::to_string(i) + "\n";
    text += "op " + when(0, 6) + "aten::mm\n";
    text += "op " + when(9, 10) + "aten::mm\n";
    text += "python_frame " + when(0, 10) + "python_id=1 train.py(12): main\n";
    text +=
        "python_frame " + when(6, 9) + "python_id=2 train.py(31): features\n";
  }
  const Report report = Analyze(TraceFromText(text));
  const Finding* finding = Find(report, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "train.py:31 in features");
}

// Kernels of `kernel_us` with 1 ms pauses on the host.
Report OnGpu(double kernel_us) {
  GpuText text;
  for (int i = 0; i < 5; ++i) {
    for (int k = 0; k < 5; ++k) {
      text.Begin("op", "aten::mm");
      text.Kernel(kernel_us, "gemm");
      text.End();
      text.Pass(1'000);
    }
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(PythonBetweenOpsTest, CountsOnlyWhatTheGpuWaitsFor) {
  EXPECT_NE(Find(OnGpu(200), "python-between-ops"), nullptr);
  EXPECT_TRUE(IsClean(OnGpu(2'000), "python-between-ops"));
}

// The GPU is busy while short gaps pass, and idle in all of a pause.
TEST(PythonBetweenOpsTest, CountsAllOfAPauseInWhichTheGpuIsIdle) {
  GpuText text;
  for (int i = 0; i < 5; ++i) {
    text.Pass(4'000);
    text.Begin("op", "aten::mm");
    text.Kernel(10'000, "gemm");
    text.End();
    for (int k = 0; k < 100; ++k) {
      text.Op(10, "aten::view");
      text.Pass(40);
    }
    text.Item();
    text.EndStep();
  }
  const Report report = text.Analyzed();
  const Finding* finding = Find(report, "python-between-ops");
  ASSERT_NE(finding, nullptr);
  // Nothing ran before the first pause.
  EXPECT_NEAR(finding->gain.expected_ms, 4 * 4 / 5.0, 0.3);
  EXPECT_TRUE(IsClean(report, "launch-bound"));
}

// A tensor of the host that an op replaces is freed after it.
TEST(PythonBetweenOpsTest, LeavesTheFreeingOfTensorsThatTheHostComputes) {
  const auto of = [](double op_us, bool on_device) {
    GpuText text;
    for (int i = 0; i < 5; ++i) {
      text.Begin("op", "aten::mm");
      text.Kernel(2'000, "gemm");
      text.End();
      text.Item();
      text.Begin("op", "aten::div");
      text.Pass(op_us);
      if (on_device) text.Call(1, "cudaGetDevice");
      text.End();
      text.Pass(2'000);
      text.EndStep();
    }
    return text.Analyzed();
  };
  EXPECT_TRUE(IsClean(of(2'500, false), "python-between-ops"));
  EXPECT_NE(Find(of(1'500, false), "python-between-ops"), nullptr);
  EXPECT_NE(Find(of(2'500, true), "python-between-ops"), nullptr);
}

}  // namespace
}  // namespace stepscope::own_code_test
