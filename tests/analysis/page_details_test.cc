// Tests what a page draws of a Trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/page.h>
#include <stepscope/ranks.h>

#include <algorithm>
#include <string>
#include <vector>

#include "drawing/step_lanes.h"
#include "support/cpu_loop.h"
#include "support/gpu_loop.h"
#include "support/random_trace.h"
#include "support/simulated_training.h"
#include "support/trace_text.h"

namespace stepscope::page_details_test {
namespace {

using testing::ElementsAre;

PageDetails DetailsOf(const Trace& trace) {
  PageDetails details;
  Analyze(trace, &details);
  return details;
}

std::vector<std::string> LaneNames(const PageStep& step) {
  std::vector<std::string> names;
  for (const PageLane& lane : step.lanes) names.push_back(lane.name);
  return names;
}

void ExpectDrawable(const PageDetails& details) {
  EXPECT_LE(details.steps.size(), kDrawnSteps);
  for (const PageStep& step : details.steps) {
    const double length_us = (step.end_ns - step.begin_ns) * 1e-3;
    for (const PageLane& lane : step.lanes) {
      double end_us = 0;
      for (const PageBlock& block : lane.blocks) {
        // If rows of a thread or stream overlap, its lane draws them in order
        // of their start.
        EXPECT_GE(block.begin_us, 0);
        EXPECT_GE(block.begin_us + 1e-9, std::min(end_us, block.begin_us));
        EXPECT_LE(block.begin_us + block.length_us, length_us + 1e-3);
        EXPECT_LT(block.name, details.names.size());
        end_us = block.begin_us;
      }
      EXPECT_LE(lane.blocks.size(), 160u);
    }
  }
  for (const PageExample& example : details.examples) {
    EXPECT_LT(example.step, details.steps.size());
  }
}

TEST(PageDetailsTest, DrawsAStepOfACpuRun) {
  const Trace trace = Simulate({.batch_ms = 40, .ops = Ops(4, 6)}).trace;
  const PageDetails details = DetailsOf(trace);
  ASSERT_FALSE(details.steps.empty());
  ExpectDrawable(details);
  EXPECT_EQ(LaneNames(details.steps[0])[0], "critical path");
  EXPECT_EQ(LaneNames(details.steps[0])[1], "training thread");
  const PageLane& thread = details.steps[0].lanes[1];
  double data_us = 0;
  for (const PageBlock& block : thread.blocks) {
    if (std::string(block.cause) == "data") data_us += block.length_us;
  }
  EXPECT_NEAR(data_us, 40'000, 1'000);
  EXPECT_TRUE(details.kernels.empty());
}

TEST(PageDetailsTest, MarksTheExamplesOfFindings) {
  const Trace trace = Simulate({.batch_ms = 40, .ops = Ops(4, 6)}).trace;
  PageDetails details;
  const Report report = Analyze(trace, &details);
  const auto finding =
      std::ranges::find(report.findings, "sync-data-loading", &Finding::id);
  ASSERT_NE(finding, report.findings.end());
  ASSERT_FALSE(finding->examples.empty());
  const Example& example = finding->examples[0];
  const auto drawn = std::ranges::find(details.examples, example.begin_ns,
                                       &PageExample::begin_ns);
  ASSERT_NE(drawn, details.examples.end());
  const PageStep& step = details.steps[drawn->step];
  EXPECT_EQ(step.number, example.step);
  EXPECT_LE(step.begin_ns, example.begin_ns);
  EXPECT_GE(step.end_ns, example.end_ns);
}

TEST(PageDetailsTest, ListsWhatADeviceDid) {
  const ProgramRun run = RunGpuLoop(
      "repeat 10 { op aten::mm 30us in=c10::BFloat16[512x512],"
      "c10::BFloat16[512x512] { kernel ampere_bf16_s16816gemm_bf16_128x128 "
      "200us } }\n"
      "copy h2d 1MB pinned async\n");
  const PageDetails details = DetailsOf(run.ranks[0]);
  ExpectDrawable(details);
  ASSERT_EQ(details.kernels.size(), 1u);
  const PageKernel& kernel = details.kernels[0];
  EXPECT_NEAR(kernel.calls, 10, 1e-9);
  EXPECT_NEAR(kernel.ms, 2, 0.05);
  EXPECT_EQ(kernel.kind, "matmul");
  EXPECT_EQ(kernel.precision, "bf16");
  EXPECT_EQ(kernel.tensor_cores, 1);
  EXPECT_NEAR(details.kernels_ms, kernel.ms, 1e-9);
  // 2 * 512^3 operations in 200 us.
  EXPECT_NEAR(kernel.flops_per_s, 2.0 * 512 * 512 * 512 / 200e-6,
              0.05 * 2.0 * 512 * 512 * 512 / 200e-6);
  EXPECT_GT(kernel.roofline_frac, 0);
  EXPECT_LE(kernel.roofline_frac, 1);
  ASSERT_EQ(details.copies.size(), 1u);
  EXPECT_EQ(details.copies[0].kind, "pinned -> device");
  EXPECT_NEAR(details.copies[0].calls, 1, 1e-9);
  EXPECT_GT(details.copies[0].bytes, 0.9e6);
}

// Thousands of counter samples do not displace the few readings of clocks.
TEST(PageDetailsTest, HardwareCountersAreThinnedByThemselves) {
  std::string text = "step 0..100000000 thread=0\n";
  for (int i = 0; i < 20'000; ++i) {
    text += "device_sample " + std::to_string(5'000 * i) +
            " device=0 counted_ns=5000 sm_active_frac=0.5\n";
    if (i % 1000 == 0) {
      text += "device_sample " + std::to_string(5'000 * i) +
              " device=0 sm_clock_mhz=1980\n";
    }
  }
  const PageDetails details = DetailsOf(TraceFromText(text));
  ASSERT_EQ(details.devices.size(), 1u);
  size_t clocks = 0, counters = 0;
  double last_ms = 0;
  for (const PageSample& sample : details.devices[0].samples) {
    clocks += sample.sm_clock_mhz > 0;
    counters += sample.sm_active_frac == 0.5;
    EXPECT_GE(sample.time_ms, last_ms);
    last_ms = sample.time_ms;
  }
  EXPECT_EQ(clocks, 20u);
  EXPECT_GT(counters, 100u);
  EXPECT_LT(counters, 2'000u);
}

TEST(PageDetailsTest, MemoryAtThePeakHasOwners) {
  const Trace trace = TraceFromText(R"(
    watch step op memory
    step 0..1000 thread=0 number=3
    op 100..200 thread=0 aten::mm
    op 110..120 thread=0 aten::empty
    op 300..400 thread=0 aten::add
    op 500..600 thread=0 aten::mul
    allocation 115 thread=0 address=1 bytes=1000 total_allocated_bytes=1500 device_type=1 device=0
    allocation 310 thread=0 address=2 bytes=400 total_allocated_bytes=1900 device_type=1 device=0
    allocation 350 thread=0 address=2 bytes=-400 total_allocated_bytes=1500 device_type=1 device=0
    allocation 510 thread=0 address=3 bytes=600 total_allocated_bytes=2100 device_type=1 device=0
    allocation 590 thread=0 address=3 bytes=-600 total_allocated_bytes=1500 device_type=1 device=0
  )");
  const PageDetails details = DetailsOf(trace);
  ASSERT_EQ(details.memory.size(), 1u);
  const PageMemory& memory = details.memory[0];
  EXPECT_EQ(memory.device, "gpu 0");
  EXPECT_EQ(memory.step, 3);
  EXPECT_EQ(memory.peak_bytes, 2100);
  EXPECT_NEAR(memory.peak_us, 0.51, 1e-9);
  EXPECT_EQ(*std::ranges::max_element(memory.bytes), memory.peak_bytes);
  // aten::mm owns the block that aten::empty allocated. aten::add's block is
  // already freed.
  ASSERT_EQ(memory.owners.size(), 2u);
  EXPECT_EQ(memory.owners[0].op, "aten::mm");
  EXPECT_EQ(memory.owners[0].bytes, 1000);
  EXPECT_EQ(memory.owners[1].op, "aten::mul");
  EXPECT_EQ(memory.older_bytes, 500);
}

TEST(PageDetailsTest, CountedMemoryPeaksWhereTheReportSays) {
  const Trace trace = SimulatedTraining({.gpu = true});
  PageDetails details;
  const Report report = Analyze(trace, &details);
  ASSERT_FALSE(details.memory.empty());
  for (const PageMemory& memory : details.memory) {
    int64_t highest = 0;
    for (const MemorySummary& peak : report.memory) {
      if (peak.device == memory.device) {
        highest = std::max(highest, peak.peak_bytes);
      }
    }
    EXPECT_EQ(memory.peak_bytes, highest) << memory.device;
    EXPECT_EQ(*std::ranges::max_element(memory.bytes), highest);
    int64_t owned = memory.older_bytes;
    for (const PageMemory::Owner& owner : memory.owners) owned += owner.bytes;
    EXPECT_LE(owned, highest);
  }
}

TEST(PageDetailsTest, ARecordingWithoutStepsIsDrawnWhole) {
  const Trace trace = TraceFromText(R"(
    op 1000..3000 thread=0 aten::mm
    op 5000..9000 thread=0 aten::add
  )");
  const PageDetails details = DetailsOf(trace);
  ASSERT_EQ(details.steps.size(), 1u);
  EXPECT_EQ(details.steps[0].number, -1);
  EXPECT_EQ(details.steps[0].begin_ns, 1000);
  EXPECT_EQ(details.steps[0].end_ns, 9000);
}

TEST(PageDetailsTest, AnyTraceCanBeDrawn) {
  for (uint64_t seed = 1; seed < 30; ++seed) {
    const Trace trace = RandomTrace({.seed = seed});
    PageDetails details;
    const Report report = Analyze(trace, &details);
    ExpectDrawable(details);
    EXPECT_GT(ToHtml(report, details).size(), 0u);
  }
  PageDetails nothing;
  Analyze(Trace(), &nothing);
  EXPECT_TRUE(nothing.steps.empty());
}

TEST(PageDetailsTest, LongNamesAndManyRowsStayBounded) {
  std::string text = "step 0..100000000 thread=0 number=0\n";
  for (int i = 0; i < 20'000; ++i) {
    text += "op " + std::to_string(i * 5000) + ".." +
            std::to_string(i * 5000 + 4000) + " thread=0 op" +
            std::to_string(i) + "\n";
  }
  const PageDetails details = DetailsOf(TraceFromText(text));
  ExpectDrawable(details);
  EXPECT_LE(details.names.size(), 1000u);
}

TEST(PageDetailsTest, TheOnlyRankOfAJobHasNoNumber) {
  EXPECT_EQ(DetailsOf(SimulatedTraining({.rank = 0, .world_size = 1})).rank,
            -1);
}

TEST(PageDetailsTest, TheDigestOfARankHasThem) {
  const Trace trace =
      SimulatedTraining({.gpu = true, .rank = 1, .world_size = 2});
  PageDetails details;
  DigestRank(trace, &details);
  EXPECT_EQ(details.rank, 1);
  ASSERT_FALSE(details.steps.empty());
  EXPECT_EQ(LaneNames(details.steps[0])[0], "critical path");
  ASSERT_FALSE(details.collectives.empty());
  EXPECT_EQ(details.collectives[0].kind, "all-reduce");
}

}  // namespace
}  // namespace stepscope::page_details_test
