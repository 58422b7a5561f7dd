#include "timeline/time_split.h"

#include <gtest/gtest.h>

#include "context/analysis_context.h"
#include "support/cpu_loop.h"
#include "support/random_trace.h"
#include "support/trace_text.h"

namespace stepscope::time_split_test {
namespace {

CauseTimes SplitOf(const std::string& text) {
  const Trace trace = TraceFromText(text);
  return AnalysisContext(trace).splits.at(0);
}

TEST(TimeSplitTest, PartsAddUpToEveryStepOfRandomTraces) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    for (bool gpu : {false, true}) {
      const Trace trace = RandomTrace(
          {.seed = seed, .steps = 4, .ops_per_step = 80, .gpu = gpu});
      const AnalysisContext measured(trace);
      ASSERT_EQ(measured.splits.size(), measured.steps.windows.size());
      for (size_t i = 0; i < measured.splits.size(); ++i) {
        EXPECT_EQ(measured.splits[i].total(),
                  measured.steps.windows[i].tiled.length())
            << "seed " << seed << " gpu " << gpu << " step " << i;
        for (size_t c = 0; c < kCauses; ++c) {
          EXPECT_GE(measured.splits[i][static_cast<Cause>(c)], 0);
        }
      }
    }
  }
}

TEST(TimeSplitTest, LeavesComputeAndTheirParentsDispatch) {
  const CauseTimes split = SplitOf(R"(
    step 0..100 thread=0
    op 10..60 thread=0 aten::conv2d
    op 15..55 thread=0 aten::mkldnn_convolution
    op 20..22 thread=0 aten::empty
  )");
  EXPECT_EQ(split[Cause::kCompute], 40);
  EXPECT_EQ(split[Cause::kDispatch], 10);
  EXPECT_EQ(split[Cause::kHostCode], 50);
}

// FSDP2's post-backward hook waits for the reduce-scatter inside a node written
// in Python. In the last step, the node computes while a collective runs.
TEST(TimeSplitTest, ANodeThatContinuesWhenACollectiveEndsWaitedForIt) {
  const auto step = [](int64_t begin_us, int64_t node_end_us) {
    const auto span = [begin_us](int64_t begin, int64_t end) {
      return std::to_string((begin_us + begin) * 1000) + ".." +
             std::to_string((begin_us + end) * 1000) + " ";
    };
    return SplitOf(
        "step " + span(0, 10'000) + "thread=0\nop " + span(0, node_end_us) +
        "thread=0 kind=backward PostBackwardBackward\nop " + span(0, 1'000) +
        "thread=0 c10d::_reduce_scatter_base_\nrange " + span(1'000, 6'000) +
        "thread=1 kind=collective gloo:all_reduce\n");
  };
  const CauseTimes waits = step(0, 6'100);
  EXPECT_EQ(waits[Cause::kCommunication], 6'000'000);
  EXPECT_EQ(waits[Cause::kDispatch], 100'000);
  const CauseTimes computes = step(0, 9'000);
  EXPECT_EQ(computes[Cause::kCommunication], 1'000'000);
  EXPECT_EQ(computes[Cause::kDispatch], 8'000'000);
}

TEST(TimeSplitTest, OpsInsideALoaderRangeAreData) {
  const CauseTimes split = SplitOf(R"(
    step 0..100 thread=0
    range 0..30 thread=0 kind=loader enumerate(DataLoader)#x.__next__
    op 10..40 thread=0 aten::stack
  )");
  EXPECT_EQ(split[Cause::kData], 30);
  EXPECT_EQ(split[Cause::kCompute], 10);
  EXPECT_EQ(split[Cause::kHostCode], 60);
}

// Recording a loader's ops makes loading longer.
TEST(TimeSplitTest, TheCostOfOpsInsideALoaderIsNoData) {
  const CauseTimes split = SplitOf(R"(
    run op_cost_ns=5
    step 0..100 thread=0
    range 0..30 thread=0 kind=loader enumerate(DataLoader)#x.__next__
    op 10..20 thread=0 aten::select
    op 20..30 thread=0 aten::stack
  )");
  EXPECT_EQ(split[Cause::kData], 20);
  EXPECT_EQ(split[Cause::kProfiler], 10);
}

TEST(TimeSplitTest, ALoaderOfAnotherThreadTakesNothing) {
  const CauseTimes split = SplitOf(R"(
    step 0..100 thread=0
    range 0..30 thread=1 kind=loader enumerate(DataLoader)#x.__next__
  )");
  EXPECT_EQ(split[Cause::kData], 0);
}

TEST(TimeSplitTest, BackwardOnItsOwnThreadIsNotHostCode) {
  const CauseTimes split = SplitOf(R"(
    step 0..100 thread=0
    op 0..20 thread=0 aten::mm
    op 30..80 thread=1 kind=backward MmBackward0
    op 40..70 thread=1 aten::mm
  )");
  EXPECT_EQ(split[Cause::kCompute], 50);
  EXPECT_EQ(split[Cause::kDispatch], 20);
  EXPECT_EQ(split[Cause::kHostCode], 30);
}

TEST(TimeSplitTest, AWorkerThreadsOpsAreNotTheSteps) {
  const CauseTimes split = SplitOf(R"(
    step 0..100 thread=0
    op 0..20 thread=0 aten::mm
    op 30..80 thread=1 aten::stack
  )");
  EXPECT_EQ(split[Cause::kCompute], 20);
  EXPECT_EQ(split[Cause::kHostCode], 80);
}

TEST(TimeSplitTest, GarbageCollectionYieldsToDataOnly) {
  const CauseTimes split = SplitOf(R"(
    step 0..100 thread=0
    range 0..30 thread=0 kind=loader enumerate(DataLoader)#x.__next__
    range 20..50 thread=0 Python GC
    op 40..60 thread=0 aten::mm
  )");
  EXPECT_EQ(split[Cause::kData], 30);
  EXPECT_EQ(split[Cause::kGc], 20);
  EXPECT_EQ(split[Cause::kCompute], 10);
}

// aten::div by a scalar first makes a tensor from the scalar and then computes.
TEST(TimeSplitTest, TimeBeyondTheCallsOfInnerOpsIsComputation) {
  const auto split = [](int64_t own_us) {
    const std::string end = std::to_string(2'000 + own_us * 1'000);
    return SplitOf("step 0..20000000 thread=0\nop 0.." + end +
                   " thread=0 aten::div\n"
                   "op 500..1500 thread=0 aten::to\n"
                   "op 700..1400 thread=0 aten::_to_copy\n"
                   "op 800..1300 thread=0 aten::copy_\n");
  };
  EXPECT_GE(split(12'000)[Cause::kCompute], 12'000'000);
  EXPECT_LE(split(12'000)[Cause::kDispatch], 1'000);
  // Two calls at 20 us each explain the 30 us.
  EXPECT_EQ(split(30)[Cause::kCompute], 500);
  EXPECT_GE(split(30)[Cause::kDispatch], 30'000);
  EXPECT_GE(split(42)[Cause::kCompute], 42'000);
}

TEST(TimeSplitTest, RecordingIsTakenFromTheFrameworksTime) {
  const CauseTimes split = SplitOf(R"(
    run op_cost_ns=5
    step 0..100 thread=0
    op 10..60 thread=0 aten::conv2d
    op 20..55 thread=0 aten::mkldnn_convolution
  )");
  EXPECT_EQ(split[Cause::kProfiler], 10);
  EXPECT_EQ(split[Cause::kDispatch], 5);
  EXPECT_EQ(split.total(), 100);
}

TEST(TimeSplitTest, TheGpusIdleTimeGoesToWhatTheHostDid) {
  // The device is idle before the first kernel: during a loader range, then
  // code, then the launch.
  const CauseTimes split = SplitOf(R"(
    step 0..1000000 thread=0
    range 0..500000 thread=0 kind=loader enumerate(DataLoader)#x.__next__
    op 600000..700000 thread=0 aten::mm
    runtime_call 650000..655000 thread=0 correlation=1 cudaLaunchKernel
    kernel 660000..900000 correlation=1 gemm
    runtime_call 900000..1000000 thread=0 correlation=2 cudaDeviceSynchronize
  )");
  EXPECT_EQ(split[Cause::kData], 500000);
  EXPECT_EQ(split[Cause::kHostCode], 100000);
  EXPECT_EQ(split[Cause::kDispatch], 50000);
  EXPECT_EQ(split[Cause::kKernelLatency], 10000);
  EXPECT_EQ(split[Cause::kCompute], 240000);
  EXPECT_EQ(split[Cause::kSync], 100000);
}

TEST(TimeSplitTest, QueuedWorkThatStartsLateWaitedForSomethingElse) {
  const CauseTimes split = SplitOf(R"(
    step 0..1000000 thread=0
    runtime_call 0..1000 thread=0 correlation=1 cudaLaunchKernel
    runtime_call 1000..2000 thread=0 correlation=2 cudaLaunchKernel
    runtime_call 2000..3000 thread=0 correlation=3 cudaLaunchKernel
    kernel 1000..100000 correlation=1 a
    kernel 105000..200000 correlation=2 b
    kernel 300000..1000000 correlation=3 c
  )");
  EXPECT_EQ(split[Cause::kKernelLatency], 6000);
  EXPECT_EQ(split[Cause::kDependency], 100000);
}

TEST(TimeSplitTest, PhasesComeFromRangesWherePresent) {
  const Trace trace = TraceFromText(R"(
    step 0..1000000 thread=0
    range 0..200000 thread=0 kind=loader enumerate(DataLoader)#x.__next__
    range 200000..500000 thread=0 kind=phase forward
    range 500000..900000 thread=0 kind=phase backward
  )");
  const AnalysisContext measured(trace);
  const auto phases = SplitByPhase(trace, measured.tree, measured.steps);
  EXPECT_DOUBLE_EQ(phases.at("data"), 0.2);
  EXPECT_DOUBLE_EQ(phases.at("forward"), 0.3);
  EXPECT_DOUBLE_EQ(phases.at("backward"), 0.4);
  EXPECT_DOUBLE_EQ(phases.at("other"), 0.1);
}

TEST(TimeSplitTest, PhasesAreInferredFromAutogradNodes) {
  const Trace trace = TraceFromText(R"(
    step 0..1000000 thread=0
    op 0..300000 thread=0 aten::mm
    op 300000..700000 thread=0 kind=backward MmBackward0
    range 700000..900000 thread=0 kind=optimizer Optimizer.step#SGD.step
  )");
  const AnalysisContext measured(trace);
  const auto phases = SplitByPhase(trace, measured.tree, measured.steps);
  EXPECT_DOUBLE_EQ(phases.at("forward"), 0.3);
  EXPECT_DOUBLE_EQ(phases.at("backward"), 0.4);
  EXPECT_DOUBLE_EQ(phases.at("optimizer"), 0.2);
}

TEST(TimeSplitTest, ShortPausesBelongToTheForwardPass) {
  const auto forward = [](const std::string& second_ns) {
    const Trace trace = TraceFromText(
        "step 0..1000000 thread=0\nop 0..100000 thread=0 aten::mm\nop " +
        second_ns + "..300000 thread=0 aten::mm\n");
    const AnalysisContext measured(trace);
    return SplitByPhase(trace, measured.tree, measured.steps).at("forward");
  };
  EXPECT_DOUBLE_EQ(forward("150000"), 0.3);
  EXPECT_DOUBLE_EQ(forward("151000"), 0.249);
}

// The host is done after 0.5 ms; the device computes for another 0.5 ms.
TEST(TimeSplitTest, BusyTimeOfADeviceIsOfThePhaseThatLaunchedIt) {
  const Trace trace = TraceFromText(R"(
    step 0..1000000 thread=0
    op 0..100000 thread=0 aten::mm
    runtime_call 90000..95000 thread=0 correlation=1 cudaLaunchKernel
    op 100000..300000 thread=1 kind=backward MmBackward0
    runtime_call 200000..205000 thread=1 correlation=2 cudaLaunchKernel
    range 300000..500000 thread=0 kind=optimizer Optimizer.step#SGD.step
    runtime_call 400000..405000 thread=0 correlation=3 cudaLaunchKernel
    kernel 100000..400000 correlation=1 forward
    kernel 400000..900000 correlation=2 backward
    kernel 900000..950000 correlation=3 update
  )");
  const AnalysisContext measured(trace);
  const auto phases = SplitByPhase(trace, measured.tree, measured.steps);
  EXPECT_DOUBLE_EQ(phases.at("forward"), 0.4);  // 0.1 before its kernel starts
  EXPECT_DOUBLE_EQ(phases.at("backward"), 0.5);
  EXPECT_DOUBLE_EQ(phases.at("optimizer"), 0.05);
  EXPECT_DOUBLE_EQ(phases.at("other"), 0.05);
}

TEST(TimeSplitTest, WorkAfterTheOptimizersStepIsNoPartOfIt) {
  const auto phases_of = [](const std::string& range) {
    const Trace trace = TraceFromText(R"(
      step 0..1000000 thread=0
      op 0..300000 thread=0 aten::mm
      op 300000..500000 thread=0 kind=backward MmBackward0
      op 500000..550000 thread=0 aten::_foreach_norm
      op 600000..650000 thread=0 aten::_fused_sgd_
      op 700000..800000 thread=0 aten::histc
      op 800000..820000 thread=0 aten::_amp_update_scale_
      range 850000..900000 thread=0 kind=optimizer Optimizer.zero_grad#SGD.zero_grad
    )" + range);
    const AnalysisContext measured(trace);
    return SplitByPhase(trace, measured.tree, measured.steps);
  };
  const auto phases = phases_of(
      "range 600000..700000 thread=0 kind=optimizer "
      "Optimizer.step#SGD.step\n");
  EXPECT_DOUBLE_EQ(phases.at("optimizer"), 0.22);
  EXPECT_DOUBLE_EQ(phases.at("other"), 0.28);
  // With LibTorch, no mark shows where the optimizer's step ends, neither here
  // nor in the next recorded step.
  EXPECT_DOUBLE_EQ(phases_of("").at("optimizer"), 0.27);
  EXPECT_DOUBLE_EQ(phases_of("range 1600000..1700000 thread=0 kind=optimizer "
                             "Optimizer.step#SGD.step\n")
                       .at("optimizer"),
                   0.27);
}

TEST(TimeSplitTest, CopyingIsNoForwardPass) {
  const Trace trace = TraceFromText(R"(
    step 0..1000000 thread=0
    op 0..300000 thread=0 aten::empty
    op 300000..900000 thread=0 aten::copy_
  )");
  const AnalysisContext measured(trace);
  const auto phases = SplitByPhase(trace, measured.tree, measured.steps);
  EXPECT_FALSE(phases.contains("forward"));
  EXPECT_DOUBLE_EQ(phases.at("other"), 1);
}

}  // namespace
}  // namespace stepscope::time_split_test
