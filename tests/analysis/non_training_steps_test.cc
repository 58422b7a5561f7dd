#include "steps/non_training_steps.h"

#include <gtest/gtest.h>
#include <stepscope/analysis.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "support/gpu_text.h"

namespace stepscope::non_training_steps_test {
namespace {

using Body = std::function<void(GpuText&)>;

void Forward(GpuText& run) {
  for (int i = 0; i < 4; ++i) {
    run.Begin("op", "aten::conv2d");
    run.Kernel(900, "conv");
    run.End();
  }
}
void Train(GpuText& run) {
  Forward(run);
  for (int i = 0; i < 4; ++i) {
    run.Begin("op", "ConvolutionBackward0", "kind=backward");
    run.Op(5, "aten::convolution_backward");
    run.Kernel(1800, "dgrad");
    run.End();
  }
}

// Returns the kinds of `count` training steps. `more` adds work at the end of
// each step in `extra`.
std::vector<StepKind> Kinds(int count, const std::vector<int>& extra,
                            const Body& more, const Body& train = Train) {
  GpuText run;
  for (int step = 0; step < count; ++step) {
    train(run);
    if (std::ranges::count(extra, step)) more(run);
    run.Synchronize();
    run.EndStep();
  }
  const Trace trace = run.Build();
  const AnalysisContext measured(trace);
  std::vector<StepKind> kinds;
  for (const StepWindow& window : measured.steps.windows) {
    kinds.push_back(window.kind);
  }
  return kinds;
}
int64_t CountOf(const std::vector<StepKind>& kinds, StepKind kind) {
  return std::ranges::count(kinds, kind);
}

TEST(NonTrainingStepsTest, AnExtraForwardPassIsValidation) {
  const auto kinds = Kinds(9, {4}, Forward);
  EXPECT_EQ(kinds[4], StepKind::kValidation);
  EXPECT_EQ(CountOf(kinds, StepKind::kSteady), 8);
}

TEST(NonTrainingStepsTest, AnotherBackwardPassIsTraining) {
  EXPECT_NE(Kinds(4, {2}, Train)[2], StepKind::kValidation);
}

TEST(NonTrainingStepsTest, HalfAnExtraForwardPassIsTheThreshold) {
  const auto with = [](int convolutions) {
    return Kinds(8, {4}, [=](GpuText& run) {
      for (int i = 0; i < convolutions; ++i) {
        run.Begin("op", "aten::conv2d");
        run.Kernel(3000, "conv");
        run.End();
      }
    })[4];
  };
  EXPECT_NE(with(1), StepKind::kValidation);
  EXPECT_EQ(with(2), StepKind::kValidation);
}

TEST(NonTrainingStepsTest, AStepWithoutBackwardAmongStepsWithIsValidation) {
  int step = 0;
  const auto kinds = Kinds(
      8, {}, [](GpuText&) {},
      [&](GpuText& run) { step++ % 4 == 1 ? Forward(run) : Train(run); });
  EXPECT_EQ(CountOf(kinds, StepKind::kValidation), 2);
  EXPECT_EQ(kinds[1], StepKind::kValidation);
}

TEST(NonTrainingStepsTest, InferenceRunsHaveNoValidationSteps) {
  const auto kinds = Kinds(
      8, {3}, [](GpuText& run) { Forward(run), Forward(run); }, Forward);
  EXPECT_EQ(CountOf(kinds, StepKind::kValidation), 0);
}

TEST(NonTrainingStepsTest, AValidationRangeSufficesWithoutOps) {
  const auto with = [](const char* name) {
    return Kinds(4, {2}, [=](GpuText& run) { run.Range(20'000, name); })[2];
  };
  EXPECT_EQ(with("validate"), StepKind::kValidation);
  EXPECT_EQ(with("run_eval(epoch 3)"), StepKind::kValidation);
  EXPECT_EQ(with("medieval"), StepKind::kSteady);
}

TEST(NonTrainingStepsTest, DownloadsAndRangesMarkCheckpoints) {
  const auto download = [](int64_t bytes) {
    return Kinds(6, {4}, [=](GpuText& run) {
      run.BlockingCopy(4000, "device", "pageable", bytes);
    })[4];
  };
  EXPECT_EQ(download(16 << 20), StepKind::kCheckpoint);
  EXPECT_NE(download((16 << 20) - 1), StepKind::kCheckpoint);
  EXPECT_EQ(
      Kinds(6, {4},
            [](GpuText& run) { run.Range(20'000, "save_checkpoint"); })[4],
      StepKind::kCheckpoint);
}

TEST(NonTrainingStepsTest, AStepThatIsNotSlowStaysInTheMean) {
  // Steps take about 11 ms.
  const auto with = [](double us) {
    return Kinds(6, {4}, [=](GpuText& run) {
      run.Synchronize();
      run.Range(us, "save_checkpoint");
    })[4];
  };
  EXPECT_EQ(with(1500), StepKind::kSteady);
  EXPECT_EQ(with(3500), StepKind::kCheckpoint);
}

TEST(NonTrainingStepsTest, WorkInMoreThanAThirdOfTheStepsIsOrdinary) {
  EXPECT_EQ(CountOf(Kinds(9, {1, 4, 7}, Forward), StepKind::kValidation), 3);
  EXPECT_EQ(CountOf(Kinds(9, {1, 3, 5, 7}, Forward), StepKind::kValidation), 0);
}

TEST(NonTrainingStepsTest, TheReportSaysWhichStepsAreLeftOut) {
  GpuText run;
  for (int step = 0; step < 9; ++step) {
    Train(run);
    if (step == 4) Forward(run);
    if (step == 6) run.BlockingCopy(4000, "device", "pageable", 100 << 20);
    run.Synchronize();
    run.EndStep();
  }
  const Report report = run.Analyzed();
  EXPECT_EQ(report.steps.count, 9);
  EXPECT_EQ(report.steps.steady, 7);
  EXPECT_GT(report.steps.all_mean_ms, report.steps.mean_ms);
  ASSERT_EQ(report.step_times.size(), 9u);
  EXPECT_EQ(report.step_times[4].kind, "validation");
  EXPECT_EQ(report.step_times[6].kind, "checkpoint");
  for (const StepTimes& step : report.step_times) {
    double sum = 0;
    for (const auto& [cause, ms] : step.time_split_ms) sum += ms;
    EXPECT_NEAR(sum, step.ms, 1e-6);
  }
  const std::string text = ToText(report, TextOptions());
  EXPECT_NE(text.find("mean of 7 steady steps out of 9; excluded: 1 with "
                      "validation (4), 1 with a checkpoint"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace stepscope::non_training_steps_test
