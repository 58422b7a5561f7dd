#include <algorithm>
#include <vector>

#include "analysis/rules/rule_testing.h"
#include "support/gpu_text.h"

namespace stepscope::cuda_graphs_test {
namespace {

// Five steps of 40 ops with slow launches. `middle` runs after the first 20
// ops, `last` at the end of a step.
template <typename Middle, typename Last>
Report SlowToLaunch(Middle middle, Last last) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 40; ++i) {
      if (i == 20) middle(run, step);
      run.Begin("op", "aten::add");
      run.Pass(30);
      run.Kernel(3, "elementwise_kernel");
      run.End();
    }
    last(run, step);
    run.EndStep();
  }
  return run.Analyzed();
}
const auto kNothing = [](GpuText&, int) {};
constexpr const char* kObstacles = "cuda-graph-obstacles";

TEST(CudaGraphObstaclesTest, NamesTheOpsBetweenTheLaunches) {
  const Report report = SlowToLaunch(
      [](GpuText& run, int) {
        run.Item();
        run.Copy(2, "pageable", "device", 4096);
        run.Call(20, "cudaMalloc");
      },
      kNothing);
  const Finding* finding = Find(report, kObstacles);
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kNone);
  for (const char* part :
       {"1 wait for the GPU per step", "aten::item", "1 copy from pageable",
        "1 call of the driver's allocator"}) {
    EXPECT_NE(finding->evidence.find(part), std::string::npos)
        << part << ": " << finding->evidence;
  }
  EXPECT_NE(finding->fix_python.find("caching allocator"), std::string::npos);
}

TEST(CudaGraphObstaclesTest, NamesStepsThatLaunchOtherKernels) {
  const Report report = SlowToLaunch(
      [](GpuText& run, int step) {
        if (step == 3) run.Kernel(3, "another_kernel");
      },
      kNothing);
  const Finding* finding = Find(report, kObstacles);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("only 4 of 5 steps launch the same kernels"),
            std::string::npos)
      << finding->evidence;
}

TEST(CudaGraphObstaclesTest, SaysThatNoTwoStepsLaunchTheSame) {
  const Report report = SlowToLaunch(
      [](GpuText& run, int step) {
        run.Kernel(3, "kernel_" + std::to_string(step));
      },
      kNothing);
  const Finding* finding = Find(report, kObstacles);
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("no two of 5 steps launch the same kernels"),
            std::string::npos)
      << finding->evidence;
}

TEST(CudaGraphObstaclesTest, StaysSilentWhereNothingIsInTheWay) {
  EXPECT_TRUE(IsClean(SlowToLaunch(kNothing, kNothing), kObstacles));
}

// A loss read after the last launch can stay outside the graph.
TEST(CudaGraphObstaclesTest, LeavesOutWhatIsReadAtTheEnd) {
  EXPECT_TRUE(
      IsClean(SlowToLaunch(kNothing, [](GpuText& run, int) { run.Item(); }),
              kObstacles));
}

// CUDA graphs would gain nothing here, so obstacles do not matter.
TEST(CudaGraphObstaclesTest, StaysSilentWhereTheDeviceIsTheLimit) {
  GpuText run;
  for (int step = 0; step < 5; ++step) {
    for (int i = 0; i < 40; ++i) {
      if (i == 20) run.Item();
      run.Kernel(500, "gemm");
    }
    run.EndStep();
  }
  EXPECT_TRUE(IsClean(run.Analyzed(), kObstacles));
}

// Five steps of 10 ms: a graph of two kernels with a gap between them.
Report GraphWithGap(int64_t gap_us, const std::string& call) {
  std::string text;
  for (int64_t step = 0; step < 5; ++step) {
    const int64_t t = step * 10'000'000;
    const auto at = [&](int64_t begin_ns, int64_t end_ns) {
      return std::to_string(t + begin_ns) + ".." + std::to_string(t + end_ns);
    };
    const std::string id = " correlation=" + std::to_string(step + 1) + " ";
    text += "step " + at(0, 10'000'000) +
            " thread=0 number=" + std::to_string(step) + "\nruntime_call " +
            at(100, 2'000) + " thread=0" + id + call + "\nkernel " +
            at(3'000, 5'000'000) + " stream=7" + id + "gemm\nkernel " +
            at(5'000'000 + gap_us * 1000, 10'000'000) + " stream=7" + id +
            "relu\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(GraphIdleTest, SaysThatTheTraceCannotExplainIt) {
  const Report report = GraphWithGap(800, "cudaGraphLaunch");
  const Finding* finding = Find(report, "graph-idle");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kNone);
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  EXPECT_NE(finding->evidence.find("idle for 0.80 ms of the 10.0 ms step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->where, "before relu (0.80 ms)");
}

TEST(GraphIdleTest, FiresFromFivePerCentOfTheStep) {
  EXPECT_TRUE(IsClean(GraphWithGap(450, "cudaGraphLaunch"), "graph-idle"));
  EXPECT_FALSE(IsClean(GraphWithGap(550, "cudaGraphLaunch"), "graph-idle"));
}

TEST(GraphIdleTest, IgnoresGapsOfWorkThatWasLaunchedByItself) {
  EXPECT_TRUE(IsClean(GraphWithGap(800, "cudaLaunchKernel"), "graph-idle"));
}

// Steps of 10 ms. Those in `captured` capture a graph for 20 ms.
Report Capturing(const std::vector<int>& captured) {
  GpuText run;
  for (int step = 0; step < 8; ++step) {
    if (std::ranges::count(captured, step) > 0) {
      run.Call(10, "cudaStreamBeginCapture");
      run.Call(1'000, "cudaStreamEndCapture");
      run.Call(19'000, "cudaGraphInstantiate");
    }
    run.Begin("op", "aten::mm");
    run.Kernel(10'000, "gemm");
    run.End();
    run.Item();
    run.EndStep();
  }
  return run.Analyzed();
}

TEST(GraphRecaptureTest, CountsCapturesOfLaterSteps) {
  const Report report = Capturing({2, 5});
  const Finding* finding = Find(report, "graph-recapture");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 5, 0.05);
  EXPECT_NE(finding->evidence.find("2 times in 2 of 8 steps"),
            std::string::npos)
      << finding->evidence;
}

TEST(GraphRecaptureTest, OneCaptureAndTheFirstOneAreUsual) {
  EXPECT_TRUE(IsClean(Capturing({4}), "graph-recapture"));
  EXPECT_TRUE(IsClean(Capturing({0, 4}), "graph-recapture"));
  EXPECT_FALSE(IsClean(Capturing({0, 3, 4}), "graph-recapture"));
}

}  // namespace
}  // namespace stepscope::cuda_graphs_test
