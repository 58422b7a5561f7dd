#include <gmock/gmock.h>
#include <stepscope/trace_builder.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "rule_testing.h"
#include "support/cpu_loop.h"
#include "support/trace_copy.h"
#include "support/trace_text.h"

namespace stepscope::data_quality_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Trace With(const Loop& loop, const std::vector<Loss>& losses,
           const std::vector<int64_t>& waits = {}) {
  const Trace trace = Simulate(loop).trace;
  TraceBuilder builder;
  AddAll(trace, builder);
  for (const Loss& loss : losses) builder.Add(loss);
  builder.run().wait_step_ns = waits;
  return builder.Build();
}

const Loop kLoop{.batch_ms = 30, .ops = Ops(20, 2)};

TEST(CaptureIncompleteTest, DroppedEventsWithdrawEveryGain) {
  const Report report =
      Analyze(With(kLoop, {{.name = "buffer-full",
                            .detail = "1,000 events did not fit",
                            .count = 1000}}));
  const Finding* finding = Find(report, "capture-incomplete");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->status, FindingStatus::kError);
  EXPECT_EQ(&report.findings.front(), finding);
  EXPECT_FALSE(Promises(report, "sync-data-loading"));
  EXPECT_FALSE(Promises(report, "cores-idle"));
  EXPECT_TRUE(report.plan.ids.empty());
}

TEST(CaptureIncompleteTest, AMissingCollectorIsNoLoss) {
  const Report report = Analyze(With(
      kLoop, {{.name = "cupti-unavailable", .detail = "no NVIDIA driver"}}));
  EXPECT_TRUE(IsClean(report, "capture-incomplete"));
  EXPECT_TRUE(Promises(report, "sync-data-loading"));
  EXPECT_EQ(report.losses.size(), 1u);
}

TEST(CaptureIncompleteTest, WhereNothingCouldRunIsAnError) {
  const Report report =
      Analyze(With(kLoop, {{.name = "buffers-unavailable",
                            .detail = "no memory for the event buffers",
                            .severity = Severity::kError}}));
  ASSERT_NE(Find(report, "capture-incomplete"), nullptr);
  EXPECT_EQ(Find(report, "capture-incomplete")->status, FindingStatus::kError);
}

TEST(CaptureIncompleteTest, AHealthyTraceIsClean) {
  EXPECT_TRUE(IsClean(Analyze(With(kLoop, {})), "capture-incomplete"));
}

TEST(CaptureIncompleteTest, LaunchesWithoutGpuWorkAreAnError) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..1000 thread=0
    runtime_call 0..10 thread=0 correlation=1 cudaLaunchKernel
  )"));
  ASSERT_NE(Find(report, "capture-incomplete"), nullptr);
  EXPECT_EQ(Find(report, "capture-incomplete")->status, FindingStatus::kError);
}

const Finding& IncompleteIn(const Report& report) {
  const Finding* finding = Find(report, "capture-incomplete");
  static const Finding kNone;
  return finding == nullptr ? kNone : *finding;
}

size_t Times(std::string_view text, std::string_view part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++times;
  }
  return times;
}

// What the rest of a file holds is unknown.
TEST(CaptureIncompleteTest, ACutFileMayHoldLaterWhatSeemsToBeMissing) {
  const Report report = Analyze(TraceFromText(
      "op 100..900 thread=0 aten::cudnn_convolution\n"
      "loss severity=error count=1 detail=\"the file is truncated\" "
      "truncated-file\n"));
  const Finding& finding = IncompleteIn(report);
  EXPECT_THAT(finding.evidence,
              HasSubstr("The file is truncated. The GPU's activities and step "
                        "marks may come later in the file."));
  EXPECT_THAT(finding.evidence, Not(HasSubstr("neither calls")));
  EXPECT_EQ(finding.fix_cpp, "copy the file again, or record it again");
  EXPECT_EQ(finding.fix_python, finding.fix_cpp);
  for (const std::string& text : {ToText(report, {}), ToMarkdown(report)}) {
    EXPECT_EQ(Times(text, "truncated"), 1u) << text;
    EXPECT_THAT(text, Not(HasSubstr("Step()")));
  }
}

TEST(CaptureIncompleteTest, MissingStepMarksAreSaidOnce) {
  const Report report =
      Analyze(TraceFromText("op 100..900 thread=0 aten::mm\n"));
  for (const std::string& text : {ToText(report, {}), ToMarkdown(report)}) {
    EXPECT_EQ(Times(text, "no step marks"), 1u) << text;
    EXPECT_EQ(Times(text, "prof.step()"), 1u) << text;
    EXPECT_THAT(text, Not(HasSubstr("No steps were found")));
  }
}

TEST(CaptureIncompleteTest, JaxMarksItsStepsItsOwnWay) {
  const Finding finding = IncompleteIn(Analyze(TraceFromText(
      "run producer=XSpace\nop 100..900 thread=0 dot_general\n")));
  EXPECT_EQ(finding.fix_cpp, "");
  EXPECT_THAT(finding.fix_python,
              AllOf(HasSubstr("jax.profiler.StepTraceAnnotation"),
                    Not(HasSubstr("prof.step()"))));
}

TEST(CaptureIncompleteTest, QueriesAloneAreNoGpuWork) {
  const Finding finding = IncompleteIn(Analyze(
      TraceFromText("runtime_call 1..2 thread=0 cudaGetDeviceCount\n"
                    "runtime_call 3..9 thread=0 cudaDeviceSynchronize\n")));
  EXPECT_EQ(finding.status, FindingStatus::kWarning);
  EXPECT_THAT(finding.evidence,
              AllOf(HasSubstr("Nothing ran inside the profiled region"),
                    HasSubstr("its 2 calls of the GPU's runtime launched "
                              "nothing"),
                    Not(HasSubstr("step marks"))));
  EXPECT_NE(finding.fix_python, "");
}

TEST(CaptureIncompleteTest, MissingDeviceActivityHasAFix) {
  for (const char* rows :
       {"run producer=torch.profiler\nop 1..9 thread=0 aten::record_stream\n",
        "op 1..9 thread=0 aten::record_stream\n",
        "runtime_call 1..9 thread=0 cudaLaunchKernel\n",
        "op 1..9 thread=0 npu::npu_fusion_attention\n"}) {
    const Finding finding = IncompleteIn(Analyze(TraceFromText(rows)));
    EXPECT_EQ(finding.status, FindingStatus::kError) << rows;
    EXPECT_NE(finding.fix_python, "") << rows;
  }
}

// 200 kernels; those in [first, first + count) have no launch.
Report WithoutLaunches(int first, int count) {
  std::string text = "step 0..10000000 thread=0\n";
  for (int i = 0; i < 200; ++i) {
    const std::string at = std::to_string(1000 + i * 1000);
    text += "kernel " + at + ".." + std::to_string(1500 + i * 1000) +
            " correlation=" + std::to_string(i) + " k\n";
    if (i < first || i >= first + count) {
      text += "runtime_call " + std::to_string(i * 1000) + ".." + at +
              " thread=0 correlation=" + std::to_string(i) +
              " cudaLaunchKernel\n";
    }
  }
  return Analyze(TraceFromText(text));
}

TEST(CaptureIncompleteTest, UnmatchedGpuWorkWarnsAboveOnePerCent) {
  EXPECT_TRUE(IsClean(WithoutLaunches(100, 2), "capture-incomplete"));
  EXPECT_FALSE(IsClean(WithoutLaunches(100, 3), "capture-incomplete"));
}

TEST(CaptureIncompleteTest, WorkFromBeforeTheRecordingIsNotMissing) {
  EXPECT_TRUE(IsClean(WithoutLaunches(0, 50), "capture-incomplete"));
}

// Ops so short that the cost of recording them is visible.
const Loop kDense{.batch_ms = 1, .ops = Ops(3000, 0.01)};

// Recorded steps take longer than the unrecorded wait steps by `share`.
Report SlowerBy(const Loop& loop, double share) {
  const auto wait =
      static_cast<int64_t>(Simulate(loop).mean_step_ms * 1e6 / (1 + share));
  return Analyze(With(loop, {}, {wait, wait, wait}));
}

TEST(ObserverEffectTest, WarnsWhenRecordedStepsAreSlower) {
  const auto slower_by = [&](double share) { return SlowerBy(kDense, share); };
  EXPECT_TRUE(IsClean(slower_by(0.04), "observer-effect"));
  const Report warned = slower_by(0.08);
  ASSERT_NE(Find(warned, "observer-effect"), nullptr);
  EXPECT_EQ(Find(warned, "observer-effect")->status, FindingStatus::kWarning);
  const Report failed = slower_by(0.20);
  ASSERT_NE(Find(failed, "observer-effect"), nullptr);
  EXPECT_EQ(Find(failed, "observer-effect")->status, FindingStatus::kError);
}

// Recorded steps take a fifth longer than the wait steps. For the fraction
// `frac` of each, the thread had no core.
Report SlowerWithDelay(double frac) {
  const LoopRun run = Simulate(kDense);
  const auto wait = static_cast<int64_t>(run.mean_step_ms * 1e6 / 1.2);
  TraceBuilder builder;
  AddAll(run.trace, builder);
  for (const Step& step : run.trace.steps()) {
    const double length = static_cast<double>(step.end_ns - step.begin_ns);
    builder.Add(HostUsage{.step = step.number,
                          .begin_ns = step.begin_ns,
                          .end_ns = step.end_ns,
                          .run_delay_ns = std::llround(frac * length)});
  }
  builder.run().wait_step_ns = {wait, wait, wait};
  return Analyze(builder.Build());
}

TEST(ObserverEffectTest, TimeWithoutACoreIsNoEffectOfRecording) {
  EXPECT_FALSE(IsClean(SlowerWithDelay(0.01), "observer-effect"));
  const Report warned = SlowerWithDelay(0.1);
  ASSERT_NE(Find(warned, "observer-effect"), nullptr);
  EXPECT_EQ(Find(warned, "observer-effect")->status, FindingStatus::kWarning);
  EXPECT_NE(Find(warned, "observer-effect")
                ->evidence.find("of that, other threads occupied the training "
                                "thread's core"),
            std::string::npos);
  EXPECT_TRUE(IsClean(SlowerWithDelay(0.2), "observer-effect"));
}

TEST(ObserverEffectTest, FewOpsCannotHaveSlowedTheStep) {
  EXPECT_TRUE(IsClean(SlowerBy(kLoop, 0.30), "observer-effect"));
}

TEST(ObserverEffectTest, ManyAllocationsCanHaveSlowedTheStep) {
  const auto with = [](int allocations) {
    std::string text;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t begin = i * 1'000'000;
      text += "step " + std::to_string(begin) + ".." +
              std::to_string(begin + 1'000'000) +
              " thread=0 number=" + std::to_string(i) + "\nop " +
              std::to_string(begin) + ".." + std::to_string(begin + 900'000) +
              " thread=0 aten::mm\n";
      for (int k = 0; k < allocations; ++k) {
        text += "allocation " + std::to_string(begin + k * 1000) +
                " thread=0 bytes=64\n";
      }
    }
    TraceBuilder builder;
    AddAll(TraceFromText(text), builder);
    builder.run().wait_step_ns = {700'000, 700'000, 700'000};
    return Analyze(builder.Build());
  };
  EXPECT_TRUE(IsClean(with(0), "observer-effect"));
  EXPECT_FALSE(IsClean(with(500), "observer-effect"));
}

TEST(ObserverEffectTest, OneSlowWaitStepHidesNothing) {
  const auto step = static_cast<int64_t>(Simulate(kDense).mean_step_ms * 1e6);
  const int64_t usual = step / 2;
  EXPECT_FALSE(
      IsClean(Analyze(With(kDense, {}, {usual, usual, 3 * usual, usual})),
              "observer-effect"));
  // Two of three steps may agree by chance.
  EXPECT_TRUE(IsClean(Analyze(With(kDense, {}, {usual, usual, 3 * usual})),
                      "observer-effect"));
}

TEST(ObserverEffectTest, DoesNotTakeNoiseForAnEffect) {
  const auto step = static_cast<int64_t>(Simulate(kDense).mean_step_ms * 1e6);
  // The wait steps themselves vary by 20 %.
  EXPECT_TRUE(IsClean(
      Analyze(With(kDense, {}, {step * 9 / 10, step * 11 / 10, step * 8 / 10})),
      "observer-effect"));
}

// Four steps of 1 ms with kernels of `kernel_us`. Before the recording, the
// host needed half as long.
Report AfterHostSteps(int64_t kernel_us) {
  std::string text;
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t begin = i * 1'000'000;
    const std::string id = std::to_string(i);
    text += "step " + std::to_string(begin) + ".." +
            std::to_string(begin + 1'000'000) + " thread=0 number=" + id +
            "\nruntime_call " + std::to_string(begin) + ".." +
            std::to_string(begin + 5'000) + " thread=0 correlation=" + id +
            " cudaLaunchKernel\nkernel " + std::to_string(begin + 5'000) +
            ".." + std::to_string(begin + 5'000 + kernel_us * 1'000) +
            " correlation=" + id + " k\n";
  }
  TraceBuilder builder;
  AddAll(TraceFromText(text), builder);
  builder.run().wait_step_ns = {500'000, 500'000, 500'000};
  return Analyze(builder.Build());
}

TEST(ObserverEffectTest, IsHiddenByADeviceThatSetsThePace) {
  EXPECT_TRUE(IsClean(AfterHostSteps(950), "observer-effect"));
  EXPECT_FALSE(IsClean(AfterHostSteps(500), "observer-effect"));
}

TEST(ObserverEffectTest, OverheadRecordsTellInAFile) {
  const auto with = [](int64_t ns) {
    return Analyze(TraceFromText(
        "step 0..1000000 thread=0\nop 0..900000 thread=0 aten::mm\n"
        "overhead 0.." +
        std::to_string(ns) + " thread=0 Buffer Flush\n"));
  };
  EXPECT_TRUE(IsClean(with(30'000), "observer-effect"));
  ASSERT_FALSE(IsClean(with(31'000), "observer-effect"));
  EXPECT_EQ(Find(with(31'000), "observer-effect")->confidence,
            Confidence::kHint);
}

// A step of 10 ms: 8 ms of waiting for a batch, then `ops` ops in 2 ms.
Report Dense(int ops) {
  std::string text =
      "step 0..10000000 thread=0\n"
      "range 0..8000000 thread=0 kind=loader enumerate(DataLoader)\n"
      "runtime_call 8000000..8005000 thread=0 correlation=1 cudaLaunchKernel\n"
      "kernel 8005000..9000000 correlation=1 k\n";
  for (int i = 0; i < ops; ++i) {
    const int64_t begin = 8'010'000 + 1'980'000LL * i / ops;
    text += "op " + std::to_string(begin) + ".." + std::to_string(begin + 500) +
            " thread=0 aten::view\n";
  }
  return Analyze(TraceFromText(text));
}

TEST(ObserverEffectTest, CountsEventsAgainstTheTimeTheHostWorked) {
  EXPECT_FALSE(IsClean(Dense(260), "observer-effect"));
  EXPECT_TRUE(IsClean(Dense(240), "observer-effect"));
}

// A torch.profiler recording on a GPU without step marks: 200 ops, each of
// which calls two inner ops. An inner op takes `leaf_ns` and launches a kernel
// of `kernel_ns`. Recording an op costs four times the 210 ns between the inner
// ops.
Report OfTorchProfiler(int64_t leaf_ns, int64_t kernel_ns) {
  std::string text = "run producer=torch.profiler\n";
  int64_t now = 1, free = 1, id = 0;
  const auto span = [](int64_t begin, int64_t end) {
    return std::to_string(begin) + ".." + std::to_string(end);
  };
  for (int i = 0; i < 200; ++i) {
    const int64_t second = now + 300 + leaf_ns + 210;
    text +=
        "op " + span(now, second + leaf_ns + 100) + " thread=0 aten::linear\n";
    for (const int64_t begin : {now + 300, second}) {
      const std::string call = " correlation=" + std::to_string(++id) + " ";
      free = std::max(free, begin + 900);
      text += "op " + span(begin, begin + leaf_ns) + " thread=0 aten::mul\n" +
              "runtime_call " + span(begin + 200, begin + 800) + " thread=0" +
              call + "cudaLaunchKernel\nkernel " +
              span(free, free + kernel_ns) + " stream=7" + call + "k\n";
      free += kernel_ns;
    }
    now = second + leaf_ns + 4'100;
  }
  return Analyze(TraceFromText(text));
}

TEST(ObserverEffectTest, EstimatesForHowLongAGpuWaits) {
  const Report report = OfTorchProfiler(2'000, 500);
  ASSERT_EQ(report.steps.count, 0);
  const Finding* finding = Find(report, "observer-effect");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->status, FindingStatus::kWarning);
  EXPECT_EQ(finding->confidence, Confidence::kHint);
  EXPECT_NE(finding->evidence.find("keeps the GPU waiting for about"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NE(ToText(report, {})
                .find("without the profiler, whose cost was estimated; gains "
                      "refer to that time\n"),
            std::string::npos)
      << ToText(report, {});
  // The threshold is a tenth of the step: three ops and two calls cost 4.2 us,
  // compared with 45.5 us and 47.9 us.
  EXPECT_FALSE(IsClean(OfTorchProfiler(20'400, 500), "observer-effect"));
  EXPECT_TRUE(IsClean(OfTorchProfiler(21'600, 500), "observer-effect"));
}

TEST(ObserverEffectTest, ABusyGpuHidesWhatRecordingCosts) {
  EXPECT_TRUE(IsClean(OfTorchProfiler(2'000, 5'000), "observer-effect"));
}

TEST(ObserverEffectTest, LoadingKernelsIsNotTheProfilers) {
  EXPECT_TRUE(
      IsClean(Analyze(TraceFromText(
                  "step 0..1000000 thread=0\nop 0..900000 thread=0 aten::mm\n"
                  "overhead 0..100000 thread=0 Lazy Function Loading\n")),
              "observer-effect"));
}

TEST(WarmupTest, NamesTheStepAndBothMeans) {
  const Report report = Analyze(TraceFromText(R"(
    step 0..300000000 thread=0 number=6
    step 300000000..400000000 thread=0 number=7
    step 400000000..500000000 thread=0 number=8
    step 500000000..600000000 thread=0 number=9
    overhead 1000..150000000 thread=0 Lazy Function Loading
  )"));
  const Finding* finding = Find(report, "warmup-in-window");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("Step 6"), std::string::npos);
  EXPECT_NE(finding->evidence.find("100 ms without it and 150 ms with it"),
            std::string::npos)
      << finding->evidence;
  EXPECT_EQ(report.steps.steady, 3);
  EXPECT_EQ(report.steps.count, 4);
}

TEST(WarmupTest, ASlowStepWithoutRecordsIsNotWarmUp) {
  EXPECT_TRUE(IsClean(Analyze(TraceFromText(R"(
    step 0..300000000 thread=0 number=6
    step 300000000..400000000 thread=0 number=7
    step 400000000..500000000 thread=0 number=8
  )")),
                      "warmup-in-window"));
}

// A driver that writes no event while it loads a kernel.
TEST(WarmupTest, KnowsTheOnlyStepByTheFirstLaunchOfAKernel) {
  const auto report = [](const std::string& rest) {
    return Analyze(TraceFromText(R"(
      step 0..10000000 thread=0 number=1
      runtime_call 1000000..8000000 thread=0 correlation=1 hipLaunchKernel
      kernel 8010000..8100000 correlation=1 relu
    )" + rest));
  };
  const Report loading = report("");
  const Finding* finding = Find(loading, "warmup-in-window");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->evidence.find("The only step spends 7.00 ms"),
            std::string::npos)
      << finding->evidence;
  // The launch waits because the device is busy and the queue is full.
  EXPECT_TRUE(IsClean(report(R"(
      runtime_call 500000..510000 thread=0 correlation=2 hipLaunchKernel
      kernel 520000..8005000 correlation=2 gemm
    )"),
                      "warmup-in-window"));
  // The kernel was loaded before.
  EXPECT_TRUE(IsClean(report(R"(
      runtime_call 500000..510000 thread=0 correlation=2 hipLaunchKernel
      kernel 520000..525000 correlation=2 relu
    )"),
                      "warmup-in-window"));
}

}  // namespace
}  // namespace stepscope::data_quality_test
