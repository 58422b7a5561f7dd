#include <stepscope/trace_builder.h>

#include <string>
#include <vector>

#include "rule_testing.h"
#include "support/cpu_loop.h"
#include "support/gpu_text.h"
#include "support/trace_copy.h"
#include "support/trace_text.h"
#include "words/labels.h"

namespace stepscope::launching_test {
namespace {

// `count` ops of 100 us with `gap_us` of framework code before each.
Report WithGaps(int count, double gap_us) {
  Loop loop;
  for (int i = 0; i < count; ++i) {
    loop.ops.push_back({.name = "aten::nonzero",
                        .ms = 0.1,
                        .parallel = false,
                        .dispatch_us = 0,
                        .gap_us = gap_us});
  }
  return Analyze(Simulate(loop).trace);
}

TEST(LaunchBoundTest, FiresWhenATenthOfTheStepIsDispatch) {
  const Report report = WithGaps(300, 15);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  // Of every 15 us, 2 us remain.
  EXPECT_NEAR(finding->gain.expected_ms, 300 * 0.013, 0.3);
}

TEST(LaunchBoundTest, StaysSilentBelowATenth) {
  EXPECT_TRUE(IsClean(WithGaps(300, 9), "launch-bound"));
  EXPECT_FALSE(IsClean(WithGaps(300, 12), "launch-bound"));
}

TEST(LaunchBoundTest, StaysSilentBelowTwoHundredOps) {
  EXPECT_TRUE(IsClean(WithGaps(199, 20), "launch-bound"));
  EXPECT_FALSE(IsClean(WithGaps(200, 20), "launch-bound"));
}

TEST(LaunchBoundTest, DoesNotPromiseToRemoveTheUsersOwnCode) {
  // A pause of 100 us is the program's own code, not the framework's.
  const Report report = WithGaps(250, 100);
  EXPECT_FALSE(Promises(report, "launch-bound"));
}

// A step of 100 ops, of which one loads its kernel for 6 ms.
TEST(LaunchBoundTest, LeavesOutWhatHappensOnce) {
  const auto with = [](bool loads) {
    GpuText run;
    for (int i = 0; i < 100; ++i) {
      run.Begin("op", "aten::add");
      run.Pass(40);
      if (i == 50) {
        if (loads) {
          run.Line("overhead " + std::to_string(run.now_ns()) + ".." +
                   std::to_string(run.now_ns() + 6'000'000) +
                   " Lazy Function Loading");
        }
        run.Pass(6'000);
      }
      run.Kernel(2, "add");
      run.End();
    }
    run.EndStep();
    return run.Analyzed();
  };
  const Report report = with(true);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("Loading kernels takes 6.00 ms"),
            std::string::npos)
      << finding->evidence;
  const Report other = with(false);
  ASSERT_NE(Find(other, "launch-bound"), nullptr);
  EXPECT_NEAR(
      Find(other, "launch-bound")->gain.expected_ms - finding->gain.expected_ms,
      6, 0.3);
}

// Some kernels lost their launches, so the replay gives no prediction.
TEST(LaunchBoundTest, IsABoundOnAGpuRunWithoutReplay) {
  std::string text = "step 0..10000000 thread=0 number=0\n";
  for (int i = 0; i < 250; ++i) {
    const int64_t at = i * 40'000;
    const std::string id = " correlation=" + std::to_string(i);
    text += "op " + std::to_string(at) + ".." + std::to_string(at + 30'000) +
            " thread=0 aten::relu\nruntime_call " +
            std::to_string(at + 20'000) + ".." + std::to_string(at + 21'000) +
            " thread=0" + id + " cudaLaunchKernel\nkernel " +
            std::to_string(at + 22'000) + ".." + std::to_string(at + 27'000) +
            id + " relu\n";
    if (i % 10 == 0) {
      text += "kernel " + std::to_string(at + 27'000) + ".." +
              std::to_string(at + 27'100) + " lost\n";
    }
  }
  const Report report = Analyze(TraceFromText(text));
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NE(finding->evidence.find("250 launches"), std::string::npos);
}

// A step with 250 launches. Every tenth launch takes `slow_us`.
Report WithCalls(int64_t usual_us, int64_t slow_us) {
  std::string text;
  int64_t at = 0;
  for (int i = 0; i < 250; ++i) {
    const int64_t call = (i % 10 == 0 ? slow_us : usual_us) * 1000;
    const std::string id = " correlation=" + std::to_string(i);
    const auto span = [&](int64_t from, int64_t to) {
      return std::to_string(at + from) + ".." + std::to_string(at + to);
    };
    text += "op " + span(0, 25'000 + call) +
            " thread=0 aten::relu\nruntime_call " +
            span(20'000, 20'000 + call) + " thread=0" + id +
            " cudaLaunchKernel\nkernel " + span(20'000 + call, 25'000 + call) +
            id + " relu\n";
    at += 35'000 + call;
  }
  return Analyze(TraceFromText("step 0.." + std::to_string(at) +
                               " thread=0 number=0\n" + text));
}

// A step of `calls` calls of `op`, each of which launches `per_call` short
// kernels.
Report OfExtension(const std::string& op, int calls, int per_call) {
  GpuText run;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < calls; ++i) {
      run.Begin("op", op);
      for (int k = 0; k < per_call; ++k) {
        run.Pass(12);
        run.Kernel(2, "tiny");
      }
      run.End();
    }
    run.Synchronize("cudaDeviceSynchronize");
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(LaunchBoundTest, NamesAnExtensionThatMakesTheLaunches) {
  const auto fix_of = [](const Report& report) {
    const Finding* finding = Find(report, "launch-bound");
    return finding == nullptr ? std::string() : finding->fix_python;
  };
  const Report report = OfExtension("MatMul8bitLt", 24, 20);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(
      finding->evidence.find(
          "MatMul8bitLt makes 480 of them, 20 launches in each of 24 calls"),
      std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(fix_of(report).starts_with("load the weights in bfloat16"));
  EXPECT_TRUE(fix_of(OfExtension("MyLayer", 24, 20))
                  .starts_with("use an implementation of MyLayer"));
  // Few kernels, a whole model in one function, and ops of PyTorch.
  for (const Report& other :
       {OfExtension("MyLayer", 200, 2), OfExtension("MyModel", 1, 480),
        OfExtension("aten::lstm", 24, 20)}) {
    EXPECT_TRUE(fix_of(other).starts_with("torch.compile")) << fix_of(other);
  }
}

TEST(LaunchBoundTest, LooksForOtherWorkWhereLaunchesAreInterrupted) {
  const auto says_so = [](const Report& report) {
    const Finding* finding = Find(report, "launch-bound");
    return finding != nullptr &&
           finding->evidence.find("14.0 us in the median and 28") !=
               std::string::npos &&
           finding->fix_python.find("compete for the cores") !=
               std::string::npos;
  };
  EXPECT_TRUE(says_so(WithCalls(14, 154)));
  EXPECT_FALSE(says_so(WithCalls(14, 14)));  // a slow host
  EXPECT_FALSE(says_so(WithCalls(6, 146)));
}

// Three steps of `count` launches. Each launch follows `inside_us` inside its
// op and `before_us` of code before the op, and its kernel takes 5 us. If
// `per_wait` is not 0, the host reads a value after every `per_wait` launches.
Trace Launches(int count, double inside_us, double before_us,
               int per_wait = 0) {
  GpuText text;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < count; ++i) {
      text.Pass(before_us);
      text.Begin("op", "aten::relu");
      text.Pass(inside_us);
      text.Kernel(5, "relu");
      text.End();
      if (per_wait > 0 && i % per_wait == 0) text.Item();
    }
    text.Synchronize();
    text.EndStep();
  }
  return text.Build();
}
Report OnGpu(int count, double inside_us, double before_us) {
  return Analyze(Launches(count, inside_us, before_us));
}

TEST(LaunchBoundTest, IsABoundIfWaitsCutTheLaunchesIntoPieces) {
  const auto kind = [](int per_wait) {
    const Report report = Analyze(Launches(400, 20, 0, per_wait));
    const Finding* finding = Find(report, "launch-bound");
    return finding == nullptr ? GainKind::kNone : finding->gain_kind;
  };
  EXPECT_EQ(kind(0), GainKind::kPredicted);
  EXPECT_EQ(kind(200), GainKind::kPredicted);
  EXPECT_EQ(kind(45), GainKind::kBound);
}

// Steps with 400 launches. All kernels of a step have the step's name.
Report Varying(const std::vector<std::string>& steps, bool uploads = false) {
  GpuText text;
  for (const std::string& name : steps) {
    if (uploads) {
      text.Begin("op", "aten::copy_");
      text.BlockingCopy(800, "pageable", "device", 4'000'000);
      text.End();
    }
    for (int i = 0; i < 400; ++i) {
      text.Begin("op", "aten::relu");
      text.Pass(20);
      text.Kernel(5, name);
      text.End();
    }
    text.Synchronize();
    text.EndStep();
  }
  return text.Analyzed();
}

TEST(LaunchBoundTest, IsAHintIfNoTwoStepsAreAlike) {
  const Report report = Varying({"a", "b", "c", "d"});
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->fix_python, "torch.compile(model, dynamic=True)");
  EXPECT_NE(finding->evidence.find("No two steps launch the same kernels"),
            std::string::npos)
      << finding->evidence;
  const Report alike = Varying({"a", "b", "c", "b"});
  finding = Find(alike, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_EQ(finding->confidence, Confidence::kStrong);
}

TEST(LaunchBoundTest, RanksAfterCertainFindingsIfNoTwoStepsAreAlike) {
  const auto order = [](const std::vector<std::string>& steps) {
    const Report report = Varying(steps, /*uploads=*/true);
    const Finding* launching = Find(report, "launch-bound");
    const Finding* uploads = Find(report, "h2d-pageable");
    if (launching == nullptr || !Promises(report, "h2d-pageable")) return 0;
    // By weight alone this would rank first: a hint counts 0.4.
    EXPECT_GT(0.4 * LikelyMs(*launching), LikelyMs(*uploads));
    return launching < uploads ? 1 : -1;
  };
  EXPECT_EQ(order({"a", "b", "c", "d"}), -1);
  EXPECT_EQ(order({"a", "a", "a", "a"}), 1);
}

TEST(LaunchBoundTest, AFewLaunchesCanHoldUpAGpu) {
  const Report report = OnGpu(16, 25, 0);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.find("At 30 us each"), std::string::npos);
  // Nothing runs between the ops.
  EXPECT_NE(finding->evidence.find(": 0.33 ms inside ops, not counting"),
            std::string::npos)
      << finding->evidence;
}

// The steps before the recorded ones took `wait_us`.
Report BehindWaitSteps(int64_t wait_us) {
  TraceBuilder builder;
  AddAll(Launches(16, 25, 0), builder);
  builder.run().wait_step_ns = std::vector<int64_t>(3, wait_us * 1'000);
  return Analyze(builder.Build());
}

TEST(LaunchBoundTest, LeavesWhatRecordingAddsOut) {
  const Report all = OnGpu(16, 25, 0);
  const auto step_us = static_cast<int64_t>(all.steps.mean_ms * 1e3);
  const Finding* whole = Find(all, "launch-bound");
  ASSERT_NE(whole, nullptr);
  const Report report = BehindWaitSteps(step_us - 100);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, whole->gain.expected_ms - 0.1, 0.01);
  EXPECT_NE(finding->evidence.find("Recording adds 0.10 ms"), std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(BehindWaitSteps(100), "launch-bound"));
}

// Longer times between launches are other work and remain.
TEST(LaunchBoundTest, LeavesTheProgramsOwnCodeOut) {
  EXPECT_TRUE(IsClean(OnGpu(16, 5, 1'000), "launch-bound"));
  const Report report = OnGpu(16, 25, 100);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_LE(finding->gain.expected_ms, 16 * 0.040);
  EXPECT_NE(finding->evidence.find("not counting pauses of more than 50 us"),
            std::string::npos)
      << finding->evidence;
}

// A recording without steps: `count` launches, each after `gap_us` of framework
// time and with a kernel of 10 us.
Report WithoutSteps(int count, double gap_us) {
  GpuText text;
  for (int i = 0; i < count; ++i) {
    text.Begin("op", "aten::relu");
    text.Pass(gap_us);
    text.Kernel(10, "relu");
    text.End();
  }
  return text.Analyzed();
}

TEST(LaunchBoundTest, PromisesAGainOfARecordingWithoutSteps) {
  const Report report = WithoutSteps(250, 40);
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(report.steps.count, 0);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_GT(finding->gain.expected_ms, 0.5 * report.recording_ms);
  EXPECT_EQ(finding->where, "aten::relu (250 launches per step)");
}

TEST(LaunchBoundTest, IsSilentWithoutStepsWhenTheDeviceHasEnoughToDo) {
  EXPECT_TRUE(IsClean(WithoutSteps(250, 5), "launch-bound"));
}

TEST(LaunchBoundTest, NamesTheRegionsOfAGpuRunThatLaunchMost) {
  GpuText run;
  for (int step = 0; step < 4; ++step) {
    run.Begin("range", "forward", "kind=phase");
    for (int i = 0; i < 60; ++i) {
      run.Begin("op", "aten::conv2d");
      run.Pass(20);
      run.Begin("op", "aten::cudnn_convolution");
      run.Pass(10);
      run.Kernel(5, "conv");
      run.End();
      run.End();
    }
    run.End();
    run.Begin("range", "Optimizer.step#SGD.step", "kind=optimizer");
    for (int i = 0; i < 161; ++i) {
      run.Begin("op", "aten::add_");
      run.Pass(10);
      run.Kernel(3, "add");
      run.End();
    }
    run.End();
    run.Synchronize();
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where,
            "Optimizer.step#SGD.step > aten::add_ (161 launches per step), "
            "forward > aten::conv2d (60)");
}

TEST(LaunchBoundTest, CountsOneLaunch) {
  GpuText run;
  for (int step = 0; step < 3; ++step) {
    for (char name = 'a'; name < 'q'; ++name) {
      run.Begin("op", std::string("aten::") + name);
      run.Pass(25);
      run.Kernel(5, "relu");
      run.End();
    }
    run.Synchronize();
    run.EndStep();
  }
  const Report report = run.Analyzed();
  const Finding* finding = Find(report, "launch-bound");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where,
            "aten::a (1 launch per step), aten::b (1), aten::c (1)");
}

}  // namespace
}  // namespace stepscope::launching_test
