#include "steps/steps.h"

#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <vector>

#include "support/trace_text.h"

namespace stepscope::steps_test {
namespace {

Trace StepsOf(const std::vector<int64_t>& lengths,
              const std::string& more = "") {
  std::string text = "run training_thread=0\n";
  int64_t now = 1000;
  for (size_t i = 0; i < lengths.size(); ++i) {
    text += "step " + std::to_string(now) + ".." +
            std::to_string(now + lengths[i]) +
            " thread=0 number=" + std::to_string(i) + "\n";
    now += lengths[i];
  }
  return TraceFromText(text + more);
}

Steps Find(const Trace& trace) { return FindSteps(trace, OpTree(trace)); }

TEST(StepsTest, AreTheMarksOfTheTrainingThread) {
  const Steps steps = Find(StepsOf({100, 110, 105}));
  ASSERT_EQ(steps.windows.size(), 3u);
  EXPECT_EQ(steps.windows[1].host, (Span{1100, 1210}));
  EXPECT_EQ(steps.windows[1].tiled, steps.windows[1].host);
  EXPECT_EQ(steps.steady.size(), 3u);
  EXPECT_EQ(steps.step_source, "");
  const StepStats stats = StatsOf(steps);
  EXPECT_EQ(stats.count, 3);
  EXPECT_DOUBLE_EQ(stats.mean_ms, 105e-6);
  EXPECT_DOUBLE_EQ(stats.median_ms, 105e-6);
}

TEST(StepsTest, TheLastOneIsDroppedIfNoOpRunsInIt) {
  const auto count = [](const std::string& ops) {
    return Find(StepsOf({100, 100, 5}, ops)).windows.size();
  };
  const std::string second = "op 1100..1110 thread=0 aten::mm\n";
  EXPECT_EQ(count("op 1000..1010 thread=0 aten::mm\n" + second), 2u);
  // Another thread may compute, such as that of autograd.
  EXPECT_EQ(count(second + "op 1200..1203 thread=1 aten::mm\n"), 3u);
  // Without ops, or with a step without any before it, nothing shows that the
  // last step is not like the others.
  EXPECT_EQ(count(""), 3u);
  EXPECT_EQ(count("op 1000..1010 thread=0 aten::mm\n"), 3u);
}

TEST(StepsTest, LieBetweenOptimizerStepsWithoutMarks) {
  const Steps steps = Find(TraceFromText(R"(
    range 0..50 thread=0 kind=optimizer Optimizer.step#SGD.step
    range 100..150 thread=0 kind=optimizer Optimizer.step#SGD.step
    range 200..260 thread=0 kind=optimizer Optimizer.step#SGD.step
  )"));
  ASSERT_EQ(steps.windows.size(), 2u);
  EXPECT_NE(steps.step_source, "");
  EXPECT_EQ(steps.windows[0].host, (Span{50, 150}));
  EXPECT_EQ(steps.windows[1].host, (Span{150, 260}));
}

TEST(StepsTest, AreNotInventedWhereNothingRepeats) {
  const Steps steps = Find(TraceFromText("op 0..10 thread=0 aten::add\n"));
  EXPECT_TRUE(steps.empty());
  EXPECT_EQ(StatsOf(steps).count, 0);
  EXPECT_EQ(StatsOf(steps).mean_ms, 0);
}

TEST(StepsTest, OwnTheDeviceWorkTheirCallsLaunched) {
  // The kernel of step 0 continues into step 1.
  const Steps steps = Find(StepsOf({100, 100}, R"(
    runtime_call 1010..1012 thread=0 correlation=1 cudaLaunchKernel
    kernel 1050..1130 correlation=1 k
  )"));
  EXPECT_EQ(steps.windows[0].tiled, (Span{1010, 1130}));
  EXPECT_EQ(steps.windows[1].tiled, (Span{1130, 1200}));
}

// When the recording starts, the device is still busy with the step before.
TEST(StepsTest, TheFirstBeginsWhenTheDeviceStartsOnIt) {
  const auto first = [](const std::string& launch, const std::string& begin) {
    return Find(StepsOf({100'000, 100'000, 100'000},
                        R"(
      runtime_call )" + launch +
                            R"(..25000 thread=0 correlation=1 cudaLaunchKernel
      runtime_call 110000..112000 thread=0 correlation=2 cudaLaunchKernel
      runtime_call 210000..212000 thread=0 correlation=3 cudaLaunchKernel
      kernel )" + begin + R"(..116000 correlation=1 k
      kernel 150000..216000 correlation=2 k
      kernel 250000..316000 correlation=3 k
    )"))
        .windows[0]
        .tiled;
  };
  // As far behind the host as in other steps, but no later than its first
  // launch.
  EXPECT_EQ(first("20000", "22000"), (Span{16'000, 116'000}));
  EXPECT_EQ(first("5000", "15000"), (Span{5'000, 116'000}));
  // Its first kernel had to queue.
  EXPECT_EQ(first("5000", "15001"), (Span{15'001, 116'000}));
  // A late kernel did not queue if the device lags less in the other steps.
  EXPECT_EQ(first("20000", "90000"), (Span{16'000, 116'000}));
}

TEST(StepsTest, TheFirstBeginsBehindWhatIsRecordedOfTheStepBefore) {
  const Steps steps = Find(StepsOf({100, 100}, R"(
    kernel 990..1020 correlation=1 k
    runtime_call 1010..1012 thread=0 correlation=2 cudaLaunchKernel
    kernel 1050..1150 correlation=2 k
  )"));
  EXPECT_EQ(steps.windows[0].tiled, (Span{1020, 1150}));
  // The device starts the first step only after its host window.
  const Steps late = Find(StepsOf({100, 100}, R"(
    kernel 990..1120 correlation=1 k
    runtime_call 1010..1012 thread=0 correlation=2 cudaLaunchKernel
    kernel 1130..1250 correlation=2 k
  )"));
  EXPECT_EQ(late.windows[0].tiled, (Span{1120, 1250}));
}

TEST(StepsTest, ASlowStepWithLoadingRecordsIsWarmUp) {
  const Steps steps = Find(StepsOf(
      {200, 100, 100, 100}, "overhead 1020..1080 Lazy Function Loading\n"));
  EXPECT_EQ(steps.windows[0].kind, StepKind::kWarmUp);
  EXPECT_EQ(steps.steady.size(), 3u);
  EXPECT_DOUBLE_EQ(StatsOf(steps).mean_ms, 100e-6);
}

// A search of cuDNN for each new size gets memory, too.
TEST(StepsTest, WorkThatRecursToTheLastStepIsNoWarmUp) {
  const auto with = [](const std::string& last) {
    return Find(StepsOf({100, 300, 300},
                        "overhead 1120..1180 Lazy Function Loading\n"
                        "overhead 1420.." +
                            last + " Lazy Function Loading\n"))
        .windows[1]
        .kind;
  };
  EXPECT_EQ(with("1450"), StepKind::kSteady);
  EXPECT_EQ(with("1449"), StepKind::kWarmUp);
}

TEST(StepsTest, ASlowStepWithoutRecordsIsNotWarmUp) {
  const Steps steps = Find(StepsOf({200, 100, 100, 100}));
  EXPECT_EQ(steps.windows[0].kind, StepKind::kSteady);
}

TEST(StepsTest, RecordsBelowAThirdOfTheExcessDoNotExplainIt) {
  // The excess is 100; 30 % of it is 30.
  const auto with = [](int64_t ns) {
    return Find(StepsOf({200, 100, 100, 100}, "overhead 1020.." +
                                                  std::to_string(1020 + ns) +
                                                  " Lazy Function Loading\n"))
        .windows[0]
        .kind;
  };
  EXPECT_EQ(with(29), StepKind::kSteady);
  EXPECT_EQ(with(30), StepKind::kWarmUp);
}

TEST(StepsTest, AFarOutlierIsLeftOutWhenThereAreEnoughSteps) {
  const Steps many = Find(StepsOf({100, 101, 99, 300, 100}));
  EXPECT_EQ(many.windows[3].kind, StepKind::kOutlier);
  EXPECT_EQ(many.steady.size(), 4u);
  const Steps few = Find(StepsOf({100, 101, 300}));
  EXPECT_EQ(few.steady.size(), 3u);
}

TEST(StepsTest, SlowStepsThatRecurAreNoOutliers) {
  EXPECT_EQ(Find(StepsOf({100, 101, 300, 99, 100, 300})).steady.size(), 6u);
  EXPECT_EQ(
      Find(StepsOf({100, 101, 300, 99, 100, 300, 100, 101})).steady.size(), 6u);
}

TEST(StepsTest, PeriodicWaitsForBatchesAreNoOutliers) {
  const std::vector<int64_t> lengths = {100, 101, 99,  300, 100,
                                        99,  101, 300, 100};
  const std::string wait =
      "range 1310..1505 thread=0 kind=loader enumerate(DataLoader)\n"
      "range 2010..2205 thread=0 kind=loader enumerate(DataLoader)\n";
  EXPECT_EQ(Find(StepsOf(lengths)).steady.size(), 7u);
  EXPECT_EQ(Find(StepsOf(lengths, wait)).steady.size(), 9u);
}

// The step is a far outlier unless it waits for a batch about as long as
// another step does.
TEST(StepsTest, AWaitAsLongAsAnotherStepsIsNoOutlier) {
  const std::vector<int64_t> lengths = {300, 100, 140, 100, 150,
                                        100, 145, 100, 100, 130};
  const auto text = [](const std::string& more) {
    return "range 1010..1205 thread=0 kind=loader enumerate(DataLoader)\n" +
           more;
  };
  EXPECT_EQ(Find(StepsOf(lengths, text(""))).steady.size(), 9u);
  EXPECT_EQ(Find(StepsOf(lengths, text("range 1550..1645 thread=0 kind=loader "
                                       "enumerate(DataLoader)\n")))
                .steady.size(),
            9u);
  EXPECT_EQ(Find(StepsOf(lengths, text("range 1540..1645 thread=0 kind=loader "
                                       "enumerate(DataLoader)\n")))
                .steady.size(),
            10u);
}

TEST(StepsTest, WarmUpIsMeasuredAgainstTheMedianOfTheOtherSteps) {
  const std::string one_off =
      "overhead 1000..1100 thread=0 Lazy Function Loading\n";
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{130, 100},
                                              {130, 100, 100},
                                              {130, 100, 100, 100},
                                              {130, 80, 100, 130, 131}}) {
    const Steps steps = Find(StepsOf(lengths, one_off));
    const bool slow = lengths.size() < 5;
    EXPECT_EQ(steps.windows[0].kind,
              slow ? StepKind::kWarmUp : StepKind::kSteady)
        << lengths.size();
  }
}

TEST(StepsTest, TheReplayWindowOfManyStepsHasTheMeanOfAll) {
  const Steps steps =
      Find(StepsOf({120, 100, 100, 100, 105, 105, 105, 105, 110, 110, 110}));
  ASSERT_EQ(steps.steady.size(), 11u);  // mean: 106.4
  const ReplayWindow window = ChooseReplayWindow(steps, 4);
  ASSERT_EQ(window.steps.windows.size(), 4u);
  EXPECT_EQ(window.steps.windows.front().number, 5);
  EXPECT_EQ(window.steps.steady, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(window.begin_ns, steps.windows[4].host.begin_ns);
  EXPECT_EQ(window.steps.thread, steps.thread);
}

TEST(StepsTest, TheReplayWindowKeepsNonTrainingStepsWithinIt) {
  Steps steps = Find(StepsOf({100, 100, 100, 100, 100, 100}));
  steps.windows[3].kind = StepKind::kCheckpoint;
  std::erase(steps.steady, 3u);
  const ReplayWindow window = ChooseReplayWindow(steps, 4);
  EXPECT_EQ(window.steps.windows.size(), 5u);
  EXPECT_EQ(window.steps.steady, (std::vector<size_t>{0, 1, 2, 4}));
  EXPECT_EQ(window.begin_ns, INT64_MIN);
}

TEST(StepsTest, AllStepsAreReplayedWhereNoPartHasTheirMean) {
  const Steps steps = Find(StepsOf({100, 100, 100, 100, 120, 120, 120, 120}));
  ASSERT_EQ(steps.steady.size(), 8u);
  EXPECT_EQ(ChooseReplayWindow(steps, 2).steps.windows.size(),
            2u);  // 100 and 120
  EXPECT_EQ(ChooseReplayWindow(steps, 1).steps.windows.size(), 8u);
}

TEST(StepsTest, FewStepsAreAllReplayed) {
  const Steps steps = Find(StepsOf({100, 110, 105}));
  const ReplayWindow window = ChooseReplayWindow(steps, 3);
  EXPECT_EQ(window.steps.windows.size(), 3u);
  EXPECT_EQ(window.begin_ns, INT64_MIN);
}

TEST(StepsTest, TheMedianOfAnEvenCountIsTheMeanOfTheMiddleTwo) {
  EXPECT_DOUBLE_EQ(Median({4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(Median({7}), 7);
}

}  // namespace
}  // namespace stepscope::steps_test
