#include "timeline/recorder_cost.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <string>

#include "context/analysis_context.h"
#include "evidence/recording_load.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::recorder_cost_test {
namespace {

// Four steps, each with `calls` ops of two others. What recording adds lies
// between them: `between_ns`.
struct Calls {
  int calls = 200;
  int64_t between_ns = 210;
  int64_t leaf_ns = 2'000;
  std::string run = "run producer=torch.profiler\n";
  int64_t unit_ns = 1;  // that times are rounded to
  std::string leaf = "aten::mul";
};
Trace Recorded(const Calls& with) {
  std::string text = with.run;
  int64_t now = 1;
  const auto at = [&](int64_t ns) {
    return std::to_string(ns / with.unit_ns * with.unit_ns);
  };
  for (int step = 0; step < 4; ++step) {
    const int64_t begin = now;
    std::string ops;
    for (int i = 0; i < with.calls; ++i) {
      const int64_t first = now + 300;
      const int64_t second = first + with.leaf_ns + with.between_ns;
      const int64_t end = second + with.leaf_ns + 100;
      const std::string leaf = " thread=0 " + with.leaf + "\n";
      ops += "op " + at(now) + ".." + at(end) + " thread=0 aten::linear\nop " +
             at(first) + ".." + at(first + with.leaf_ns) + leaf + "op " +
             at(second) + ".." + at(second + with.leaf_ns) + leaf;
      now = end + 4'000;
    }
    text += "step " + at(begin) + ".." + at(now) +
            " thread=0 number=" + std::to_string(step) + "\n" + ops;
  }
  return TraceFromText(text);
}
RecorderCost CostOf(const Calls& with) {
  const Trace trace = Recorded(with);
  return CostOfRecording(trace, OpTree(trace));
}

TEST(RecorderCostTest, TellsFromTheShortestTimesBetweenOps) {
  EXPECT_NEAR(CostOf({}).op_ns, 4 * 210, 1);
  EXPECT_TRUE(CostOf({}).estimated);
  // A recorder that is twice as slow costs twice as much.
  EXPECT_NEAR(CostOf({.between_ns = 420}).op_ns, 4 * 420, 1);
}

// Where operators are farther apart, the callbacks need not be slower.
TEST(RecorderCostTest, OfASlowMachineItSaysAtLeastWhatIsUsual) {
  EXPECT_NEAR(CostOf({.between_ns = 1'010}).op_ns, 4'000, 1);
  EXPECT_NEAR(CostOf({.between_ns = 1'900}).op_ns, 4'000, 1);
  EXPECT_EQ(CostOf({.between_ns = 2'100}).op_ns, 0);
}

TEST(RecorderCostTest, DoesNotGuess) {
  EXPECT_EQ(CostOf({.calls = 20}).op_ns, 0);
  // The program computes or waits between these.
  EXPECT_EQ(CostOf({.between_ns = 3'000}).op_ns, 0);
  EXPECT_EQ(CostOf({.run = "run producer=XSpace\n"}).op_ns, 0);
  EXPECT_EQ(CostOf({.unit_ns = 1'000}).op_ns, 0);
}

TEST(RecorderCostTest, BelievesARecorderThatMeasuresItself) {
  const RecorderCost cost = CostOf({.run = "run op_cost_ns=90\n"});
  EXPECT_EQ(cost.op_ns, 90);
  EXPECT_FALSE(cost.estimated);
}

// The profiler writes down a call of CUDA as it does an op.
TEST(RecorderCostTest, ACallOfCudaCostsAsMuchAsAnOp) {
  EXPECT_NEAR(CostOf({}).call_ns, 4 * 210, 1);
  EXPECT_EQ(CostOf({.between_ns = 2'100}).call_ns, 0);
}

// Four steps of 250 us with ten ops, each with a call of CUDA on a GPU, behind
// steps that took `waits`.
RecorderCost CostBehind(const std::string& waits, bool gpu = true) {
  GpuText text;
  text.Line("run op_cost_ns=90 wait_step_ns=" + waits);
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 10; ++i) {
      text.Begin("op", "aten::relu");
      text.Pass(gpu ? 20 : 25);
      if (gpu) text.Kernel(3, "relu");
      text.End();
    }
    text.EndStep();
  }
  return AnalysisContext(text.Build()).recorder;
}

// What is measured apart from the program does not know CUPTI's part.
TEST(RecorderCostTest, OnAGpuTheStepsBeforeTheWindowTell) {
  for (const char* waits : {"200000,200000", "120000,200000,260000"}) {
    const RecorderCost cost = CostBehind(waits);
    EXPECT_DOUBLE_EQ(cost.op_ns, 50'000.0 / 20) << waits;
    EXPECT_DOUBLE_EQ(cost.call_ns, 50'000.0 / 20) << waits;
    EXPECT_FALSE(cost.estimated);
  }
  // An op costs at least what was measured.
  const RecorderCost least = CostBehind("249000,249000");
  EXPECT_EQ(least.op_ns, 90);
  EXPECT_DOUBLE_EQ(least.call_ns, 1'000.0 / 20);
}

TEST(RecorderCostTest, WithoutLongerStepsOnAGpuTheMeasuredCostStays) {
  const auto stays = [](const RecorderCost& cost) {
    return cost.op_ns == 90 && cost.call_ns == 0;
  };
  EXPECT_TRUE(stays(CostBehind("200000")));
  EXPECT_TRUE(stays(CostBehind("250000,250000")));
  EXPECT_TRUE(stays(CostBehind("300000,300000")));
  EXPECT_TRUE(stays(CostBehind("200000,200000", /*gpu=*/false)));
}

// A function that calls others, `between_ns` apart.
TEST(RecorderCostTest, KnowsWhatPythonFramesCost) {
  std::string text =
      "run producer=torch.profiler\nop 1..7 thread=0 aten::mm\n"
      "python_frame 0..1000000 thread=0 train.py(1): main\n";
  for (int64_t i = 0; i < 200; ++i) {
    text += "python_frame " + std::to_string(100 + i * 1'000) + ".." +
            std::to_string(100 + i * 1'000 + 860) + " thread=0 f.py(2): g\n";
  }
  const Trace trace = TraceFromText(text);
  const RecorderCost cost = CostOfRecording(trace, OpTree(trace));
  EXPECT_NEAR(cost.frame_ns, 2 * 140, 1);
  EXPECT_EQ(cost.op_ns, 0);
}

// Each call takes 4.61 us, and 4 us pass between two: 8.61 us, of which three
// ops at 0.84 us are the profiler's.
TEST(RecorderCostTest, GainsReferToTheStepWithoutTheProfiler) {
  const Trace trace = Recorded({});
  const Report report = Analyze(trace);
  const double recorded = 200 * 8.61e-3;
  const double without = recorded - 200 * 3 * 0.84e-3;
  EXPECT_NEAR(report.steps.mean_ms, recorded, 0.001);
  EXPECT_NEAR(report.steps.unprofiled_ms, without, 0.01);
  EXPECT_TRUE(report.steps.cost_estimated);
  EXPECT_NEAR(report.time_split_ms.at("profiler"), recorded - without, 0.01);
  EXPECT_TRUE(report.replay.valid) << report.replay.why_not;
  const AnalysisContext context(trace);
  EXPECT_NEAR(context.replay.StepNs({}) * 1e-6, without, 0.01);
  const std::string text = ToText(report, TextOptions());
  EXPECT_NE(text.find("about 1.22 ms without the profiler"), std::string::npos)
      << text;
}

// Without the recorder, a part of the step with all ops is no more than its
// share of the recording; the recorder's cost in the rest makes it more.
TEST(RecorderCostTest, AnUpperBoundKeepsTheCostOfItsOwnOps) {
  const Trace trace = Recorded({});
  const AnalysisContext context(trace);
  const double half = context.step_ns() / 2;
  const double left = context.gain_step_ms() * 1e6;
  const double cost = context.step_ns() - left;
  EXPECT_NEAR(LargestUnrecordedNs(context, half, 600), left / 2, 1);
  EXPECT_NEAR(LargestUnrecordedNs(context, half, 0), half, 1);
  EXPECT_NEAR(LargestUnrecordedNs(context, half, 300),
              left * half / (context.step_ns() - cost / 2), 2'000);
  EXPECT_NEAR(LargestUnrecordedNs(context, context.step_ns(), 0), left, 1);
}

// What no event shows of the recorder's cost may be in the rest of the step.
TEST(RecorderCostTest, WidensUpperBounds) {
  Calls with{.leaf = "inputs=(double[4,4]) aten::mul"};
  const auto most_of = [](const Report& report) {
    for (const Finding& finding : report.findings) {
      if (finding.id == "fp64-compute") return finding.gain.expected_ms;
    }
    return 0.0;
  };
  const Report estimated = Analyze(Recorded(with));
  const double step = estimated.steps.unprofiled_ms;
  with.run = "";
  const double plain = most_of(Analyze(Recorded(with)));
  ASSERT_GT(plain, 0);
  EXPECT_NEAR(most_of(estimated), step * plain / (plain + (step - plain) / 1.2),
              0.01);
}

TEST(RecorderCostTest, TooDistortedARecordingPredictsNothing) {
  // An op takes 0.1 us, and recording it 3.6 us.
  const Report report =
      Analyze(Recorded({.calls = 2'000, .between_ns = 900, .leaf_ns = 100}));
  EXPECT_FALSE(report.replay.valid);
  EXPECT_NE(report.replay.why_not.find("longer than the step itself"),
            std::string::npos)
      << report.replay.why_not;
  for (const Finding& finding : report.findings) {
    EXPECT_NE(finding.gain_kind, GainKind::kPredicted) << finding.id;
  }
}

}  // namespace
}  // namespace stepscope::recorder_cost_test
