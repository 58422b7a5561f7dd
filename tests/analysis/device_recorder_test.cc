// Tests how the replay of a GPU run removes the recorder's cost.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <string>
#include <utility>

#include "context/analysis_context.h"
#include "replay/gpu/record_program.h"
#include "support/gpu_loop.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"
#include "words/labels.h"

namespace stepscope::device_recorder_test {
namespace {

constexpr int kOps = 50;

// Steps of kOps ops, each with a kernel and a CUDA call. Replayed as recorded,
// and without the recorder, which costs `cost`.
struct Recorded {
  Recorded(const std::string& step, const RecorderCost& cost)
      : trace(std::move(RunGpuLoop(step, {.steps = 6}).ranks[0])),
        measured(trace),
        without(MakeDeviceProgram(trace, measured.tree, measured.replayed,
                                  measured.parts, cost)) {}
  // Returns the step without the recorder, in us, if kernels take `factor`
  // times as long.
  double WithKernelsTimes(double factor) const {
    Edit edit;
    for (RowId row = 0; row < trace.kernels().size(); ++row) {
      edit.scales.push_back({{ActivityTable::kKernel, row}, factor});
    }
    return without.StepNs(edit) / 1000;
  }

  Trace trace;
  AnalysisContext measured;
  Replay without;
};

TEST(DeviceRecorderTest, AStepOfTheHostIsShorterByWhatEventsCost) {
  const Recorded run(ManyKernels(kOps, 4, 20),
                     {.op_ns = 3'000, .call_ns = 1'000});
  ASSERT_TRUE(run.without.check().valid) << run.without.check().why_not;
  const double recorded = run.measured.replay.StepNs({});
  const double left = recorded - kOps * 4'000;
  EXPECT_NEAR(run.without.StepNs({}), left, 0.002 * recorded);
  EXPECT_NEAR(run.without.unrecorded_frac(), left / recorded, 0.002);
  // The simulator's recorder costs almost nothing.
  EXPECT_NEAR(run.measured.replay.unrecorded_frac(), 1, 1e-3);
  // The replay itself is checked against the recorded steps.
  EXPECT_NEAR(run.without.check().no_edit_error, 0, 1e-3);
}

TEST(DeviceRecorderTest, AStepOfTheGpuIsHardlyShorter) {
  const Recorded run(ManyKernels(kOps, 60, 5) + kReadBack,
                     {.op_ns = 3'000, .call_ns = 1'000});
  ASSERT_TRUE(run.without.check().valid) << run.without.check().why_not;
  EXPECT_LE(run.without.unrecorded_frac(), 1);
  EXPECT_GT(run.without.unrecorded_frac(), 0.99);
}

// The recorder delays the host, which hides the time of kernels.
TEST(DeviceRecorderTest, ShorterKernelsGainWhatTheRecorderHid) {
  const auto body = [](double kernel_us, double host_us) {
    return ManyKernels(kOps, kernel_us, host_us) + kReadBack;
  };
  const auto truth = [&](double kernel_us) {
    return 1000 * RunGpuLoop(body(kernel_us, 8), {.steps = 6, .record = false})
                      .mean_step_ms;
  };
  const Recorded run(body(20, 20), {.op_ns = 12'000});
  EXPECT_NEAR(run.WithKernelsTimes(1), truth(20), 0.02 * truth(20));
  EXPECT_NEAR(run.WithKernelsTimes(0.5), truth(10), 0.03 * truth(10));
  ASSERT_LT(truth(10), 0.8 * truth(20));
}

// Recording an op cannot cost more than the op took.
TEST(DeviceRecorderTest, KeepsAPartOfEachTime) {
  const Recorded run(ManyKernels(kOps, 4, 20), {.op_ns = 1e6});
  EXPECT_NEAR(run.without.unrecorded_frac(), 0.3, 0.03);
}

// Ops as torch.profiler records them, 0.21 us apart: the profiler costs 0.84 us
// per op and per CUDA call. In the first half of each step, a long kernel hides
// this cost.
Trace Profiled() {
  GpuText text;
  text.Line("run producer=torch.profiler");
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 100; ++i) {
      text.Begin("op", "aten::linear");
      text.Pass(0.3);
      text.Op(2, "aten::t");
      text.Pass(0.21);
      text.Begin("op", "aten::addmm");
      text.Pass(2);
      text.Kernel(i == 0 ? 900 : 3, "gemm");
      text.End();
      text.End();
      text.Pass(10);
    }
    text.Synchronize();
    text.EndStep();
  }
  return text.Build();
}

TEST(DeviceRecorderTest, GainsReferToTheStepWithoutIt) {
  const Trace trace = Profiled();
  const Report report = Analyze(trace);
  const AnalysisContext context(trace);
  ASSERT_TRUE(context.replay.check().valid) << context.replay.check().why_not;
  const double without = report.steps.unprofiled_ms;
  // The cost hidden in the first half delays the second half.
  EXPECT_NEAR(without, report.steps.mean_ms - 100 * 4 * 0.84e-3, 0.01);
  EXPECT_NEAR(without, context.replay.StepNs({}) * 1e-6, 1e-3);
  EXPECT_TRUE(report.steps.cost_estimated);
  int predicted = 0;
  for (const Finding& finding : report.findings) {
    if (finding.gain_kind != GainKind::kPredicted) continue;
    ++predicted;
    EXPECT_EQ(BaselineMs(report, finding), without) << finding.id;
    EXPECT_NEAR(finding.speedup, without / (without - finding.gain.expected_ms),
                1e-6)
        << finding.id;
  }
  EXPECT_GT(predicted, 0);
}

// Each step calls 1000 functions, 1 us apart, before it launches a kernel.
TEST(DeviceRecorderTest, FramesTakeTimeFromTheCodeBetweenOps) {
  std::string text =
      "run producer=torch.profiler\nop 1..7 thread=0 aten::view\n"
      "python_frame 0..30000000 thread=0 train.py(1): main\n";
  const auto line = [&](const std::string& kind, int64_t begin_us,
                        int64_t end_us, const std::string& rest) {
    text += kind + " " + std::to_string(begin_us) + "000.." +
            std::to_string(end_us) + "000 " + rest + "\n";
  };
  for (int64_t step = 0; step < 5; ++step) {
    const int64_t us = 5'000 * step;
    const std::string correlation = " correlation=" + std::to_string(step + 1);
    line("step", us, us + 5'000, "thread=0 number=" + std::to_string(step));
    for (int64_t i = 0; i < 1'000; ++i) {
      line("python_frame", us + 3 * i, us + 3 * i + 2,
           "thread=0 train.py(3): f");
    }
    line("runtime_call", us + 3'000, us + 3'010,
         "thread=0" + correlation + " cudaLaunchKernel");
    line("kernel", us + 3'015, us + 4'950, "stream=7" + correlation + " gemm");
    line("runtime_call", us + 3'020, us + 4'960,
         "thread=0 cudaDeviceSynchronize");
  }
  const Report report = Analyze(TraceFromText(text));
  EXPECT_NEAR(report.time_split_ms.at("profiler"), 2, 0.1);
  EXPECT_NEAR(report.steps.unprofiled_ms, 3, 0.2);
}

}  // namespace
}  // namespace stepscope::device_recorder_test
