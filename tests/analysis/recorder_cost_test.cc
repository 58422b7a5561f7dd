#include "timeline/recorder_cost.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <string>

#include "context/analysis_context.h"
#include "engine/outcomes.h"
#include "evidence/recording_load.h"
#include "support/gpu_text.h"
#include "support/trace_text.h"

namespace stepscope::recorder_cost_test {
namespace {

// Four steps. Each has `calls` ops that call two inner ops. The recorder's cost
// lies between the inner ops and is `between_ns`.
struct Calls {
  int calls = 200;
  int64_t between_ns = 210;
  int64_t leaf_ns = 2'000;
  std::string run = "run producer=torch.profiler\n";
  int64_t unit_ns = 1;  // times are rounded to this
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

// Times between ops may be longer for other reasons, so the cost is capped.
TEST(RecorderCostTest, AssumesTheUsualCostOnASlowMachine) {
  EXPECT_NEAR(CostOf({.between_ns = 1'010}).op_ns, 4'000, 1);
  EXPECT_NEAR(CostOf({.between_ns = 1'900}).op_ns, 4'000, 1);
  EXPECT_NEAR(CostOf({.between_ns = 3'000}).op_ns, 4'000, 1);
}

TEST(RecorderCostTest, DoesNotGuess) {
  EXPECT_EQ(CostOf({.calls = 20}).op_ns, 0);
  EXPECT_EQ(CostOf({.run = "run producer=XSpace\n"}).op_ns, 0);
  EXPECT_EQ(CostOf({.unit_ns = 1'000}).op_ns, 0);
}

TEST(RecorderCostTest, TrustsARecorderThatMeasuresItsCost) {
  const RecorderCost cost = CostOf({.run = "run op_cost_ns=90\n"});
  EXPECT_EQ(cost.op_ns, 90);
  EXPECT_FALSE(cost.estimated);
}

// The profiler records a CUDA call in the same way as an op.
TEST(RecorderCostTest, ACallOfCudaCostsAsMuchAsAnOp) {
  EXPECT_NEAR(CostOf({}).call_ns, 4 * 210, 1);
}

// Four steps of 250 us with ten ops. On a GPU, each op makes a CUDA call. The
// steps before the recording took `waits`.
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

// The cost measured outside the program does not include CUPTI's part.
TEST(RecorderCostTest, OnAGpuUsesTheStepsBeforeTheWindow) {
  for (const char* waits : {"200000,200000", "120000,200000,260000"}) {
    const RecorderCost cost = CostBehind(waits);
    EXPECT_DOUBLE_EQ(cost.op_ns, 50'000.0 / 20) << waits;
    EXPECT_DOUBLE_EQ(cost.call_ns, 50'000.0 / 20) << waits;
    EXPECT_FALSE(cost.estimated);
  }
  // An op costs at least the measured time.
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

// A function that calls others, which are `between_ns` apart.
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

// A call takes 4.61 us, and the next one follows after 4 us. Of these 8.61 us,
// the profiler causes three ops at 0.84 us.
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

// Without the recorder, a part that has all ops would be bounded by its share
// of the recording. The recorder's cost in the rest of the step raises the
// bound.
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

// Some of the recorder's cost is visible in no event, and ops cost others time.
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
  EXPECT_NEAR(most_of(estimated), GainFor(1.4, plain, step), 0.01);
}

TEST(RecorderCostTest, TooDistortedARecordingPredictsNothing) {
  // An op takes 0.1 us, and recording an op takes 3.6 us.
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

// Steps with a kernel and 60 conversions of lists, which take 2.2 ms with the
// recorder. It takes 1.4 ms of that if its cost is estimated: 4 us for each of
// six ops. Without it, the kernel sets the pace.
Report Converting(double kernel_us,
                  const std::string& run = "producer=torch.profiler") {
  GpuText text;
  text.Line("run " + run);
  text.Pass(0.001);  // times in whole microseconds would be rounded ones
  for (int step = 0; step < 6; ++step) {
    text.Begin("op", "aten::mm");
    text.Kernel(kernel_us, "gemm");
    text.Pass(10);
    text.End();
    for (int i = 0; i < 60; ++i) {
      text.Op(5, "aten::empty");
      text.Pass(4);
      text.Begin("op", "aten::to");
      text.Pass(1);
      text.Op(3, "aten::empty_strided");
      text.Pass(1);
      text.Op(3, "aten::copy_");
      text.Pass(1);
      text.End();
      text.Pass(4);
      text.Op(5, "aten::lift_fresh");
      text.Pass(4);
      text.Op(5, "aten::detach_");
    }
    text.Synchronize();
    text.EndStep();
  }
  return text.Analyzed();
}

const Finding* Find(const Report& report, const std::string& id) {
  const auto found = std::ranges::find(report.findings, id, &Finding::id);
  return found == report.findings.end() ? nullptr : &*found;
}
// kNote if there is no finding.
FindingSeverity SeverityOf(const Report& report, const std::string& id) {
  const Finding* finding = Find(report, id);
  return finding == nullptr ? FindingSeverity::kNote : finding->severity;
}

// If the estimate is too high, the host limits the step without the recorder,
// too.
TEST(AsRecordedTest, WhatAnEstimatedRecorderHidesIsAHint) {
  const Report report = Converting(1'400);
  ASSERT_TRUE(report.steps.cost_estimated);
  ASSERT_LT(report.steps.unprofiled_ms, 0.8 * report.steps.mean_ms);
  const Finding* finding = Find(report, "host-copy-on-convert");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_EQ(finding->severity, FindingSeverity::kMedium);
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_DOUBLE_EQ(finding->baseline_ms, report.steps.mean_ms);
  // The kernel remains.
  EXPECT_NEAR(finding->gain.expected_ms, report.steps.mean_ms - 1.4, 0.1);
  EXPECT_NE(finding->evidence.find("These are times as recorded."),
            std::string::npos)
      << finding->evidence;
  // It takes the place of the note that nothing can be gained.
  EXPECT_EQ(std::ranges::count(report.findings, finding->id, &Finding::id), 1);
}

TEST(AsRecordedTest, ACostThatIsSmallOrMeasuredHidesNothing) {
  const Report small = Converting(1'850);
  EXPECT_GT(small.steps.unprofiled_ms, 0.8 * small.steps.mean_ms);
  EXPECT_EQ(SeverityOf(small, "host-copy-on-convert"), FindingSeverity::kNote);
  // As recorded it would be clear.
  EXPECT_EQ(SeverityOf(Converting(1'850, "name=x"), "host-copy-on-convert"),
            FindingSeverity::kHigh);

  const Report measured = Converting(1'400, "op_cost_ns=4000");
  ASSERT_LT(measured.steps.unprofiled_ms, 0.8 * measured.steps.mean_ms);
  EXPECT_EQ(SeverityOf(measured, "host-copy-on-convert"),
            FindingSeverity::kNote);
}

// Steps of 300 ops, which the host starts every 20 us with the recorder, and
// a few us without it. Their kernels take 8 us.
Report Launching(const std::string& run) {
  GpuText text;
  text.Line("run " + run);
  text.Pass(0.001);
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; i < 300; ++i) {
      text.Begin("op", "aten::linear");
      text.Pass(2);
      text.Op(2, "aten::t");
      text.Pass(1);
      text.Begin("op", "aten::addmm");
      text.Kernel(8, "gemm");
      text.End();
      text.Pass(4);
      text.End();
      text.Pass(6);
    }
    text.Synchronize();
    text.EndStep();
  }
  return text.Analyzed();
}

// What it would find is mostly the recorder's cost.
TEST(AsRecordedTest, SaysNothingOfThePaceOfTheStep) {
  ASSERT_GE(SeverityOf(Launching("name=x"), "launch-bound"),
            FindingSeverity::kHigh);
  const Report report = Launching("producer=torch.profiler");
  ASSERT_LT(report.steps.unprofiled_ms, 0.8 * report.steps.mean_ms);
  EXPECT_EQ(SeverityOf(report, "launch-bound"), FindingSeverity::kNote);
}

}  // namespace
}  // namespace stepscope::recorder_cost_test
