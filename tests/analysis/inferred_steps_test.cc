#include "steps/inferred_steps.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <numeric>
#include <string>

#include "support/trace_text.h"

namespace stepscope::inferred_steps_test {
namespace {

std::string Range(int64_t begin, int64_t end, const std::string& rest) {
  return "range " + std::to_string(begin) + ".." + std::to_string(end) +
         " thread=0 " + rest + "\n";
}

std::string Op(int64_t begin, int64_t end, const std::string& rest) {
  return "op " + std::to_string(begin) + ".." + std::to_string(end) +
         " thread=0 " + rest + "\n";
}

// `count` ranges of 80 ns that start every 100 ns, each with an op inside.
std::string Ranges(int count, const std::string& kind, const std::string& name,
                   bool numbered = false) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += Range(100 * i, 100 * i + 80,
                  "kind=" + kind + " " + name +
                      (numbered ? std::to_string(i) : std::string()));
    text += Op(100 * i + 10, 100 * i + 70, "aten::mm");
  }
  return text;
}

InferredSteps Infer(const std::string& text) {
  const Trace trace = TraceFromText(text);
  return InferSteps(trace, OpTree(trace), 0);
}

TEST(InferredStepsTest, UpdatesWithoutABackwardPassBetweenAreOne) {
  std::string text;
  for (int i = 0; i < 3; ++i) {
    text += Op(100 * i, 100 * i + 10, "kind=backward MmBackward0");
    text += Range(100 * i + 20, 100 * i + 30,
                  "kind=optimizer Optimizer.step#SGD.step");
    text += Range(100 * i + 40, 100 * i + 60,
                  "kind=optimizer Optimizer.step#Adam.step");
  }
  const InferredSteps steps = Infer(text);
  ASSERT_EQ(steps.windows.size(), 2u);
  EXPECT_EQ(steps.windows[0].host, (Span{60, 160}));
  EXPECT_EQ(steps.step_source, "the updates of the optimizer");
}

// What follows an update belongs to its step, until the next one begins.
TEST(InferredStepsTest, AStepLastsUntilTheNextOneGetsItsBatch) {
  const auto steps = [](const std::string& first_op) {
    std::string text;
    for (int i = 0; i < 4; ++i) {
      const int at = 100 * i;
      text += Op(at, at + 10, first_op);
      text += Op(at + 10, at + 20,
                 "sequence=" + std::to_string(i) + " aten::linear");
      text += Op(at + 20, at + 30,
                 "sequence=" + std::to_string(i + 1) + " aten::relu");
      text += Op(at + 30, at + 40, "kind=backward MmBackward0");
      text += Range(at + 40, at + 60, "kind=optimizer Optimizer.step#SGD.step");
      text += Op(at + 60, at + 90, "aten::mul_");
    }
    return Infer(text).windows;
  };
  ASSERT_EQ(steps("aten::index_select").size(), 3u);
  EXPECT_EQ(steps("aten::index_select")[0].host, (Span{100, 200}));
  // The end of the last step: as long after its update as in the others.
  EXPECT_EQ(steps("aten::index_select")[2].host, (Span{300, 390}));
  // Nothing tells that this prepares the next batch.
  EXPECT_EQ(steps("aten::sort")[0].host, (Span{110, 210}));
}

TEST(InferredStepsTest, OptimizersThatTakeTurnsUpdateInOneStep) {
  const auto windows = [](int generator_nodes) {
    std::string text;
    int at = 0;
    for (int i = 0; i < 8; ++i) {
      for (int node = 0; node < (i % 2 == 0 ? 2 : generator_nodes); ++node) {
        text += Op(at, at + 10, "kind=backward MmBackward0");
        at += 10;
      }
      text += Range(at, at + 10, "kind=optimizer Optimizer.step#Adam.step");
      at += 10;
    }
    return Infer(text).windows.size();
  };
  EXPECT_EQ(windows(5), 3u);
  // One optimizer, or two that cannot be told apart.
  EXPECT_EQ(windows(2), 7u);
}

TEST(InferredStepsTest, ARepeatedAnnotationNamedLikeAStepMarksThem) {
  const InferredSteps steps = Infer(Ranges(4, "user", "handle_request_", true));
  ASSERT_EQ(steps.windows.size(), 4u);
  EXPECT_EQ(steps.windows[0].host, (Span{0, 100}));
  EXPECT_EQ(steps.windows[3].host, (Span{300, 380}));
  EXPECT_NE(steps.step_source.find("handle_request_#"), std::string::npos);
}

TEST(InferredStepsTest, TwoOccurrencesAreTooFew) {
  EXPECT_TRUE(Infer(Ranges(2, "user", "iteration")).windows.empty());
  EXPECT_EQ(Infer(Ranges(3, "user", "iteration")).windows.size(), 3u);
}

TEST(InferredStepsTest, LayersAreNoSteps) {
  EXPECT_TRUE(Infer(Ranges(12, "user", "layer_", true)).windows.empty());
  EXPECT_TRUE(Infer(Ranges(12, "user", "attention")).windows.empty());
  EXPECT_EQ(Infer(Ranges(12, "user", "attention")).step_source, "");
}

TEST(InferredStepsTest, AForwardPassBeforeABackwardPassStartsAStep) {
  std::string text;
  for (int i = 0; i < 4; ++i) {
    text += Range(100 * i, 100 * i + 30, "kind=module ResNet_0");
    text += Range(100 * i + 5, 100 * i + 15, "kind=module Conv2d_0");
    text += Op(100 * i + 5, 100 * i + 15, "aten::conv2d");
    text += Op(100 * i + 40, 100 * i + 90, "kind=backward MmBackward0");
  }
  const InferredSteps steps = Infer(text);
  // The end of the last step is unknown.
  ASSERT_EQ(steps.windows.size(), 3u);
  EXPECT_EQ(steps.windows[2].host, (Span{200, 300}));
  EXPECT_NE(steps.step_source.find("ResNet_0"), std::string::npos);
}

TEST(InferredStepsTest, PythonCallsOfAWholeModuleMarkSteps) {
  std::string text;
  for (int i = 0; i < 4; ++i) {
    const auto frame = [&](int64_t begin, int64_t end, const char* name) {
      text += "python_frame " + std::to_string(100 * i + begin) + ".." +
              std::to_string(100 * i + end) + " thread=0 " + name + "\n";
    };
    frame(0, 30, "nn.Module: ResNet_0");
    frame(5, 15, "nn.Module: Linear_0");
    text += Op(100 * i + 5, 100 * i + 15, "aten::linear");
    text += Op(100 * i + 40, 100 * i + 90, "kind=backward MmBackward0");
  }
  const InferredSteps steps = Infer(text);
  ASSERT_EQ(steps.windows.size(), 3u);
  EXPECT_NE(steps.step_source.find("nn.Module: ResNet_0"), std::string::npos);
}

TEST(InferredStepsTest, EachBatchBeginsAStep) {
  std::string text;
  for (int i = 0; i < 4; ++i) {
    text += Range(100 * i, 100 * i + 10,
                  "kind=loader enumerate(DataLoader)#_SingleProcess"
                  "DataLoaderIter.__next__");
    text += Op(100 * i + 20, 100 * i + 90, "aten::mm");
  }
  const InferredSteps steps = Infer(text);
  ASSERT_EQ(steps.windows.size(), 3u);
  EXPECT_EQ(steps.windows[2].host, (Span{200, 300}));
}

TEST(InferredStepsTest, RangesThatCoverLessThanHalfOfTheRecordingAreNoSteps) {
  const std::string turns = Ranges(4, "user", "iteration");
  EXPECT_FALSE(Infer(turns + Op(700, 750, "aten::mm")).windows.empty());
  EXPECT_TRUE(Infer(turns + Op(700, 800, "aten::mm")).windows.empty());
}

TEST(WholeRecordingTest, IsJudgedAsOneStepWhereThereAreNone) {
  const Report report = Analyze(TraceFromText(R"(
    op 0..1000 thread=0 aten::mm
    runtime_call 100..200 thread=0 correlation=1 cudaLaunchKernel
    kernel 300..4300 correlation=1 k
  )"));
  EXPECT_EQ(report.steps.count, 0);
  EXPECT_EQ(report.time_split_ms, report.recording_split_ms);
  EXPECT_DOUBLE_EQ(report.steps.mean_ms, report.recording_ms);
  EXPECT_DOUBLE_EQ(report.recording_ms, 4300e-6);
  double sum = 0;
  for (const auto& [cause, ms] : report.recording_split_ms) sum += ms;
  EXPECT_NEAR(sum, report.recording_ms, 1e-9);
  EXPECT_DOUBLE_EQ(report.recording_split_ms.at("compute"), 4000e-6);
  EXPECT_NE(ToText(report, TextOptions()).find("whole recording"),
            std::string::npos);
}

// A launch of `load_us` on an idle device, then 1 ms of kernels.
Report AfterLoading(int load_us) {
  const std::string end = std::to_string(load_us * 1'000);
  return Analyze(TraceFromText(
      "op 0.." + std::to_string(load_us * 1'000 + 1'000'000) +
      " thread=0 aten::mm\nruntime_call 0.." + end +
      " thread=0 correlation=1 cudaLaunchKernel\nkernel " + end + ".." +
      std::to_string(load_us * 1'000 + 1'000'000) + " correlation=1 k\n"));
}

// A launch of less than 1 ms is slow but does not load code.
TEST(WholeRecordingTest, IsNotJudgedWhereStartingUpTakesMuchOfIt) {
  EXPECT_EQ(AfterLoading(1'500).steps.mean_ms, 0);
  EXPECT_GT(AfterLoading(1'500).recording_ms, 2.4);
  EXPECT_EQ(AfterLoading(1'000).steps.mean_ms, 0);
  EXPECT_GT(AfterLoading(999).steps.mean_ms, 1.9);
}

// An op of 2.5 ms: an inner op takes `pause_us`, then it launches a kernel.
Report AfterPause(int pause_us) {
  const std::string begin = std::to_string(pause_us * 1'000);
  const std::string launched = std::to_string(pause_us * 1'000 + 10'000);
  return Analyze(TraceFromText(
      "op 0..2500000 thread=0 aten::mm\nop 0.." + begin +
      " thread=0 aten::inner\nruntime_call " + begin + ".." + launched +
      " thread=0 correlation=1 cudaLaunchKernel\nkernel " + launched +
      "..2500000 correlation=1 k\n"));
}

TEST(WholeRecordingTest, IsNotJudgedWhereOpsLoadLibraries) {
  EXPECT_EQ(AfterPause(1'100).steps.mean_ms, 0);
  EXPECT_GT(AfterPause(900).steps.mean_ms, 0);
}

TEST(WholeRecordingTest, IsNotJudgedWhereTheTrainingThreadIsUnknown) {
  const Report report = Analyze(TraceFromText("kernel 0..1000000 k\n"));
  EXPECT_EQ(report.steps.mean_ms, 0);
  EXPECT_EQ(report.replay.why_not, "no steps were found");
}

TEST(WholeRecordingTest, IsNotSplitWhereThereAreSteps) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..1000 thread=0 number=1
    op 0..900 thread=0 aten::mm
  )"));
  EXPECT_TRUE(report.recording_split_ms.empty());
}

}  // namespace
}  // namespace stepscope::inferred_steps_test
