// Compares the simulator, without jitter, with sums computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/program_simulator.h"
#include "support/simulator/program_text.h"

namespace stepscope::simulator_test {
namespace {

using simulator::ParseNumber;
using simulator::Substitute;
using simulator::WithFixes;

constexpr const char* kQuiet = "jitter host=0 device=0 loader=0 clock=0\n";
constexpr const char* kGpu =
    "gpu A100 pcie=20 pageable=5 latency=3us queue=1024\n";

ProgramRun RunOf(const std::string& text, uint64_t seed = 1) {
  absl::StatusOr<ProgramRun> run = RunProgram(kQuiet + text, {.seed = seed});
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : ProgramRun();
}
double StepMs(const std::string& text) { return RunOf(text).mean_step_ms; }

std::string WhyNot(const std::string& text) {
  return std::string(RunProgram(text, {}).status().message());
}

TEST(ProgramTextTest, NumbersHaveUnits) {
  EXPECT_EQ(ParseNumber("12us"), 12'000);
  EXPECT_EQ(ParseNumber("2.5ms"), 2'500'000);
  EXPECT_EQ(ParseNumber("4KiB"), 4096);
  EXPECT_EQ(ParseNumber("3MB"), 3e6);
  EXPECT_NE(ParseNumber("3 apples"), ParseNumber("3 apples"));
}

TEST(ProgramTextTest, AFixIsADifference) {
  const std::string text = "a\n-b\n+c\n-2 d\n";
  EXPECT_EQ(WithFixes(text, {}), "a\n b\n\n   d\n");
  EXPECT_EQ(WithFixes(text, {true}), "a\n\n c\n   d\n");
  EXPECT_EQ(WithFixes(text, {false, true}), "a\n b\n\n\n");
}

TEST(ProgramTextTest, NumbersTakeThePlaceOfNames) {
  EXPECT_EQ(*Substitute("x $nus $(n*2+1)ms", {{"n", 3}}), "x 3us 7ms");
  EXPECT_FALSE(Substitute("$m", {{"n", 3}}).ok());
}

TEST(ProgramSimulatorTest, SaysWhichLineIsWrong) {
  EXPECT_NE(WhyNot("step {\n bogus 3\n}").find("line 2"), std::string::npos);
  EXPECT_NE(WhyNot("step {").find("} is missing"), std::string::npos);
  EXPECT_NE(WhyNot("cores 3").find("no step"), std::string::npos);
  EXPECT_NE(WhyNot("step { node X 1us }").find("no node left"),
            std::string::npos);
  EXPECT_NE(WhyNot("define a { do a }\nstep { do a }").find("uses itself"),
            std::string::npos);
  EXPECT_NE(WhyNot("step { kernel k 1us }").find("needs a gpu"),
            std::string::npos);
}

TEST(ProgramSimulatorTest, HostTimesAddUp) {
  EXPECT_NEAR(StepMs("step { host 2ms; op aten::add 300us { op aten::mul "
                     "200us } }"),
              2.5, 1e-6);
}

TEST(ProgramSimulatorTest, ADeviceBoundLoopGoesAtTheDevicesPace) {
  EXPECT_NEAR(StepMs(std::string(kGpu) + "step { repeat 10 { kernel k 1ms } }"),
              10 + 10 * 0.0009, 1e-3);
}

TEST(ProgramSimulatorTest, AHostBoundLoopGoesAtTheHostsPace) {
  EXPECT_NEAR(StepMs(std::string(kGpu) +
                     "step { repeat 10 { host 96us; kernel k 10us } }"),
              1, 1e-3);
}

TEST(ProgramSimulatorTest, ASecondStreamSharesTheDevice) {
  const std::string two = std::string(kGpu) +
                          "step { kernel a 4ms fill=$f; kernel b 4ms stream=9 "
                          "fill=$f; sync device }";
  const double apart = StepMs(*Substitute(two, {{"f", 0.5}}));
  const double crowded = StepMs(*Substitute(two, {{"f", 1}}));
  EXPECT_NEAR(apart, 4, 0.1);
  EXPECT_NEAR(crowded, 8, 0.1);
}

TEST(ProgramSimulatorTest, APageableUploadHoldsTheHostAPinnedOneDoesNot) {
  const std::string upload = "step { copy h2d 10MB $ ; host 10ms }";
  const auto with = [&](const std::string& how) {
    std::string text = upload;
    text.replace(text.find('$'), 1, how);
    return StepMs(kGpu + text);
  };
  EXPECT_NEAR(with("pageable"), 12, 0.1);       // 10 MB at 5 GB/s
  EXPECT_NEAR(with("pinned"), 10.5, 0.1);       // the host waits for the copy
  EXPECT_NEAR(with("pinned async"), 10, 0.05);  // overlaps with host work
}

TEST(ProgramSimulatorTest, BothDirectionsShareTheBus) {
  const std::string text =
      std::string(kGpu) +
      "step { copy h2d 20MB pinned async stream=8; copy d2h 20MB pinned async "
      "stream=9; sync device }";
  EXPECT_NEAR(StepMs(text), 20 / (20 * 1.35 / 2), 0.1);
}

TEST(ProgramSimulatorTest, AFullLaunchQueueHoldsTheHost) {
  const Trace trace =
      std::move(RunOf(std::string("gpu A100 queue=4\nsteps 3\n") +
                      "step { repeat 20 { kernel k 1ms } }")
                    .ranks[0]);
  int64_t longest = 0;
  for (const RuntimeCall& call : trace.runtime_calls()) {
    longest = std::max(longest, call.end_ns - call.begin_ns);
  }
  EXPECT_GT(longest, 900'000);
}

TEST(ProgramSimulatorTest, AStreamWaitsForAnEvent) {
  const Trace trace = std::move(
      RunOf(std::string(kGpu) +
            "steps 1\nstep { kernel a 5ms stream=8; record e stream=8; wait e; "
            "kernel b 1ms }")
          .ranks[0]);
  ASSERT_EQ(trace.kernels().size(), 2u);
  EXPECT_GE(trace.kernels()[1].begin_ns, trace.kernels()[0].end_ns);
}

TEST(ProgramSimulatorTest, BackwardRunsOnItsOwnThreadAndIsWaitedFor) {
  const Trace trace = std::move(
      RunOf(
          std::string(kGpu) +
          "steps 1\nstep { op aten::mul 10us grad { kernel a 1us }; backward { "
          "node MulBackward0 2ms { kernel b 1us } }; host 1ms }")
          .ranks[0]);
  const auto node =
      std::ranges::find(trace.ops(), OpKind::kBackward, &Op::kind);
  ASSERT_NE(node, trace.ops().end());
  EXPECT_NE(node->thread, trace.run().training_thread);
  ASSERT_NE(node->forward, kNone);
  EXPECT_EQ(trace.name(trace.ops()[node->forward].name), "aten::mul");
  EXPECT_GT(trace.steps()[0].end_ns - node->end_ns, 1'000'000);
}

TEST(ProgramSimulatorTest, EverythingIsLinked) {
  const Trace trace = std::move(
      RunOf(
          std::string(kGpu) +
          "steps 2\nstep { op aten::relu 9us { kernel k 5us }; op aten::copy_ "
          "9us { copy h2d 1MB pageable }; memset 8 }")
          .ranks[0]);
  ASSERT_EQ(trace.kernels().size(), 2u);
  ASSERT_EQ(trace.copies().size(), 2u);
  ASSERT_EQ(trace.memsets().size(), 2u);
  EXPECT_NE(trace.kernels()[0].call, kNone);
  EXPECT_NE(trace.kernels()[0].op, kNone);
  EXPECT_NE(trace.copies()[1].call, kNone);
  EXPECT_NE(trace.memsets()[1].call, kNone);
  EXPECT_EQ(trace.copies()[0].source, MemoryKind::kPageable);
}

TEST(ProgramSimulatorTest, ACollectiveWaitsForTheLastRank) {
  const ProgramRun run = RunOf(
      std::string(kGpu) +
      "ranks 2 network=10 latency=0us\nsteps 1\nstep { rank 1 { host 3ms }; "
      "collective all_reduce 10MB; join; kernel k 1us; sync device }");
  ASSERT_EQ(run.ranks.size(), 2u);
  const auto length = [&](int rank) {
    const Kernel& nccl = run.ranks[rank].kernels()[0];
    return (nccl.end_ns - nccl.begin_ns) * 1e-6;
  };
  EXPECT_NEAR(length(0), 4, 0.05);  // 3 ms of waiting, 10 MB at 10 GB/s
  EXPECT_NEAR(length(1), 1, 0.05);
  EXPECT_EQ(run.ranks[0].communications().size(), 1u);
  EXPECT_EQ(run.ranks[0].kernels()[0].communication, 0u);
}

TEST(ProgramSimulatorTest, WorkersSetThePaceWhenTheyAreSlow) {
  EXPECT_NEAR(StepMs("cores 8\nsteps 12\nloader workers=3 cpu=30ms\nstep { "
                     "load; host 4ms }"),
              10, 0.1);
  EXPECT_NEAR(StepMs("cores 8\nloader workers=0 cpu=30ms io=5ms\nstep { load; "
                     "host 4ms }"),
              39, 0.1);
}

TEST(ProgramSimulatorTest, WorkersCompeteForTheCores) {
  const std::string text =
      "cores 2\nintra_op 2 serial=0\nloader workers=1 cpu=40ms\nsteps "
      "20\nstep { load; op aten::mm 80ms parallel }";
  EXPECT_GT(StepMs(text), 55);  // 40 if the workers did not compete
}

TEST(ProgramSimulatorTest, ThePoolSpeedsAnOpUp) {
  EXPECT_NEAR(StepMs("cores 4\nintra_op 4 serial=0.1\nstep { op aten::mm "
                     "64ms parallel }"),
              64 * (0.1 + 0.9 / 4), 0.01);
}

TEST(ProgramSimulatorTest, AHotDeviceIsSlowerAndSaysWhy) {
  const std::string step = "steps 4\nstep { kernel k 1ms; sync device }";
  const ProgramRun hot =
      RunOf(kGpu + ("throttle 0.5 after=2 reasons=4\n" + step));
  // Two of the four steps take 1.5 times as long.
  EXPECT_NEAR(hot.mean_step_ms - StepMs(kGpu + step), 0.25, 0.01);
  std::vector<int64_t> reasons;
  for (const DeviceSample& sample : hot.ranks[0].device_samples()) {
    reasons.push_back(sample.throttle_reasons);
  }
  EXPECT_EQ(reasons, (std::vector<int64_t>{0, 0, 4, 4}));
}

TEST(ProgramSimulatorTest, DevicesOfOneProcessWorkBesideEachOther) {
  const std::string gpus = "gpu A100 latency=3us count=2\n";
  const auto with = [&](const char* where) {
    return StepMs(gpus + "step { kernel k 2ms; kernel k 2ms " + where +
                  "; sync device }");
  };
  EXPECT_NEAR(with("stream=8"), 4, 0.1);
  EXPECT_NEAR(with("device=1"), 2, 0.1);
  EXPECT_NE(WhyNot(gpus + "step { kernel k 2ms device=2 }").find("no such gpu"),
            std::string::npos);
}

TEST(ProgramSimulatorTest, ADelayHoldsItsStreamUpAndLeavesNoRow) {
  const auto with = [&](const char* between) {
    return RunOf(kGpu +
                 ("steps 3\nstep { kernel k 10us; " + std::string(between) +
                  "kernel k 10us; sync device }"));
  };
  const ProgramRun delayed = with("delay 300us; ");
  EXPECT_NEAR(delayed.mean_step_ms - with("").mean_step_ms, 0.3, 0.02);
  EXPECT_EQ(delayed.ranks[0].kernels().size(), 6u);
}

TEST(ProgramSimulatorTest, OneSeedIsOneRunAndAnotherIsAnother) {
  const std::string text = "steps 3\nstep { repeat 20 { op aten::mm 100us } }";
  const auto step = [&](uint64_t seed) {
    return RunProgram(text, {.seed = seed})->mean_step_ms;
  };
  EXPECT_EQ(step(7), step(7));
  EXPECT_NE(step(7), step(8));
}

TEST(ProgramSimulatorTest, SaysWhenNothingCanGoOn) {
  EXPECT_NE(WhyNot(std::string(kGpu) +
                   "ranks 2\nstep { rank 0 { collective all_reduce 1MB }; "
                   "sync device }")
                .find("cannot go on"),
            std::string::npos);
}

}  // namespace
}  // namespace stepscope::simulator_test
