#include "replay/critical_path.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <map>
#include <string>
#include <utility>

#include "context/analysis_context.h"
#include "support/gpu_loop.h"
#include "support/trace_text.h"

namespace stepscope::critical_path_test {
namespace {

constexpr int kSteps = 5;

// Loading a batch takes 0.4 ms on the training thread.
const std::string kLoad = "load\n";

Trace Record(const std::string& step) {
  return std::move(
      RunGpuLoop(step, {.steps = kSteps}, "loader cpu=400us").ranks[0]);
}

// Returns the path's milliseconds per step by category.
std::map<std::string, double> ByCategory(const AnalysisContext& m) {
  std::map<std::string, double> sums;
  for (const PathPart& part : SumPath(m.trace, m.steps, m.CriticalPath())) {
    sums[part.category] += part.ms_per_step;
  }
  return sums;
}

TEST(CriticalPathTest, CoversTheStepsWithoutGaps) {
  const Trace trace = Record(kLoad + ManyKernels(20, 60, 5) + kReadBack +
                             ManyKernels(20, 4, 20));
  const AnalysisContext m(trace);
  const std::vector<PathPiece> path = m.CriticalPath();
  ASSERT_FALSE(path.empty());
  EXPECT_EQ(path.front().span.begin_ns, m.steps.windows.front().tiled.begin_ns);
  EXPECT_EQ(path.back().span.end_ns, m.steps.windows.back().tiled.end_ns);
  for (size_t i = 1; i < path.size(); ++i) {
    EXPECT_EQ(path[i].span.begin_ns, path[i - 1].span.end_ns);
  }
  double sum = 0;
  for (const auto& [category, ms] : ByCategory(m)) sum += ms;
  EXPECT_NEAR(sum, m.stats.mean_ms, 1e-6);
}

TEST(CriticalPathTest, IsOnTheHostWhereTheHostIsLate) {
  const Trace trace = Record(ManyKernels(50, 4, 20));
  const AnalysisContext m(trace);
  const auto sums = ByCategory(m);
  EXPECT_GT(sums.at("dispatch"), 0.95 * m.stats.mean_ms);
}

TEST(CriticalPathTest, IsOnTheDeviceWhereTheDeviceIsBusy) {
  const Trace trace = Record(ManyKernels(50, 60, 5) + kReadBack);
  const AnalysisContext m(trace);
  EXPECT_GT(ByCategory(m).at("compute"), 0.95 * m.stats.mean_ms);
  const std::vector<PathPart> parts =
      SumPath(m.trace, m.steps, m.CriticalPath());
  EXPECT_EQ(parts.front().category, "compute");
  EXPECT_EQ(parts.front().name, "aten::add");
}

// A recording that begins when the host is nearly done: it launches a graph of
// 20 kernels of 1 ms, which start 6 ms later, behind earlier work.
TEST(CriticalPathTest, IsOnTheDeviceWhereTheHostIsDoneBeforeItBegins) {
  std::string rows =
      "runtime_call 0..100000 thread=0 correlation=1 "
      "cudaGraphLaunch\n";
  for (int i = 0; i < 20; ++i) {
    const int64_t begin = 6'000'000 + i * 1'000'000;
    rows += "kernel " + std::to_string(begin) + ".." +
            std::to_string(begin + 1'000'000) +
            " stream=7 correlation=1 graph=1 gemm\n";
  }
  const Report report = Analyze(TraceFromText(rows));
  ASSERT_FALSE(report.critical_path.empty());
  EXPECT_EQ(report.critical_path.front().category, "compute");
  EXPECT_NEAR(report.critical_path.front().ms_per_step, 20, 0.1);
  // The kernels have no op that the report could name.
  ASSERT_FALSE(report.coverage.empty());
  EXPECT_NE(report.coverage.front().why.find("mostly gemm"), std::string::npos)
      << report.coverage.front().why;
}

TEST(CriticalPathTest, GoesThroughTheStreamThatWasWaitedFor) {
  const Trace trace = Record(
      "kernel ncclKernel_AllReduce 500us stream=20\n"
      "record reduced stream=20; wait reduced\n" +
      ManyKernels(5, 20, 5) + "sync device\n");
  const AnalysisContext m(trace);
  EXPECT_NEAR(ByCategory(m).at("communication"), 0.5, 0.01);
}

TEST(CriticalPathTest, FindsTheLoaderOnlyWhereItDelaysTheStep) {
  const auto loaded = [](double kernel_us) {
    const Trace trace = Record(kLoad + ManyKernels(30, kernel_us, 5));
    const AnalysisContext m(trace);
    return ByCategory(m)["data"];
  };
  EXPECT_NEAR(loaded(4), 0.4, 0.05);
  EXPECT_NEAR(loaded(100), 0, 0.1);  // only in the first step
}

TEST(CriticalPathTest, IsDrawnInFewAdjacentSlices) {
  const Trace trace =
      Record(ManyKernels(500, 60, 5) + kReadBack + ManyKernels(500, 4, 20));
  const AnalysisContext m(trace);
  const std::vector<PathSlice> slices =
      DrawPath(m.trace, m.steps, m.CriticalPath());
  EXPECT_GE(slices.size(), 2u * kSteps - 1);
  EXPECT_LE(slices.size(), 40u * kSteps);
  for (size_t i = 1; i < slices.size(); ++i) {
    EXPECT_EQ(slices[i].begin_ns, slices[i - 1].end_ns);
    EXPECT_NE(slices[i].category, slices[i - 1].category);
  }
}

}  // namespace
}  // namespace stepscope::critical_path_test
