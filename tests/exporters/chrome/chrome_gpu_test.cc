// Tests what a GPU run adds to a Chrome trace besides its kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/trace_builder.h>

#include <string>
#include <vector>

#include "exporters/chrome/chrome_events.h"
#include "support/simulated_training.h"
#include "support/trace_text.h"

namespace stepscope::chrome_gpu_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class BothGpuFlavours : public ::testing::TestWithParam<Format> {
 protected:
  bool is_tb() const { return GetParam() == Format::kChromeTb; }
};
INSTANTIATE_TEST_SUITE_P(Chrome, BothGpuFlavours,
                         testing::Values(Format::kChromeTb,
                                         Format::kChromeKineto));

TEST_P(BothGpuFlavours, DrawsARangeOnTheGpuFromItsFirstToItsLastWork) {
  const auto ranges = WithCategory(EventsOf(TraceFromText(R"(
        range 0..100 thread=0 kind=phase forward
        range 10..50 thread=0 kind=user inner
        range 200..300 thread=0 kind=user idle
        runtime_call 20..25 thread=0 correlation=1 cudaLaunchKernel
        runtime_call 60..65 thread=0 correlation=2 cudaLaunchKernel
        runtime_call 61..66 thread=1 correlation=3 cudaLaunchKernel
        kernel 1000..1100 stream=7 correlation=1 a
        kernel 1200..1300 stream=7 correlation=2 b
        kernel 1400..1500 stream=7 correlation=3 c
      )"),
                                            GetParam()),
                                   "gpu_user_annotation");
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].name, "forward");
  EXPECT_EQ(ranges[0].end_ns - ranges[0].begin_ns, 300);
  EXPECT_EQ(ranges[0].tid, "7");
  EXPECT_EQ(ranges[1].name, "inner");
  EXPECT_EQ(ranges[1].end_ns - ranges[1].begin_ns, 100);
  // With a stream, HTA would take it for a kernel.
  EXPECT_FALSE(ranges[0].args.contains("stream"));
}

TEST_P(BothGpuFlavours, DrawsNoLoadersAndOnlyForPerfettoStepsAndCollectives) {
  const auto ranges = WithCategory(
      EventsOf(SimulatedTraining({.gpu = true, .world_size = 2}), GetParam()),
      "gpu_user_annotation");
  EXPECT_GT(ranges.size(), 10u);
  size_t collectives = 0, steps = 0;
  for (const Event& range : ranges) {
    steps += range.name.starts_with("ProfilerStep#");
    EXPECT_THAT(range.name, Not(HasSubstr("DataLoader")));
    collectives += range.name.starts_with("nccl:");
  }
  // The plugin would count a second mark as another collective, or as a step.
  EXPECT_EQ(collectives > 0, !is_tb());
  EXPECT_EQ(steps > 0, !is_tb());
}

TEST_P(BothGpuFlavours, WritesDeviceSamplesAsCounters) {
  TraceBuilder builder;
  DeviceSample sample;
  sample.time_ns = 2'000;
  sample.device = 1;
  sample.sm_clock_mhz = 1980;
  sample.power_mw = 700'500;
  sample.pcie_received_bytes_per_s = 12'500'000'000;
  sample.nvlink_sent_bytes_per_s = 250'000'000;
  sample.counted_ns = 1'000;
  sample.sm_active_frac = 0.75F;
  sample.tensor_active_frac = 0;
  builder.Add(sample);
  std::vector<Event> counters;
  for (const Event& event : EventsOf(builder.Build(), GetParam()))
    if (event.phase == "C") counters.push_back(event);
  ASSERT_EQ(counters.size(), 6u);
  EXPECT_EQ(counters[0].name, "SM clock (MHz)");
  EXPECT_EQ(counters[0].pid, "GPU 1 Counters");
  EXPECT_EQ(counters[0].args.at(""), "1980");
  EXPECT_EQ(counters[1].name, "power (W)");
  EXPECT_EQ(counters[1].args.at(""), "700.5");
  EXPECT_EQ(counters[2].name, "PCIe received (GB/s)");
  EXPECT_EQ(counters[2].args.at(""), "12.5");
  EXPECT_EQ(counters[3].name, "NVLink sent (GB/s)");
  EXPECT_EQ(counters[3].args.at(""), "0.25");
  EXPECT_EQ(counters[4].name, "SMs active (%)");
  EXPECT_EQ(counters[4].args.at(""), "75");
  EXPECT_EQ(counters[5].name, "Tensor Cores active (%)");
  EXPECT_EQ(counters[5].args.at(""), "0");
}

// The curves of `name` as "pid time value".
std::vector<std::string> CurveOf(const std::vector<Event>& events,
                                 std::string_view name) {
  std::vector<std::string> points;
  for (const Event& event : events) {
    if (event.phase == "C" && event.name == name) {
      points.push_back(event.pid + " " + std::to_string(event.begin_ns) + " " +
                       event.args.at(""));
    }
  }
  return points;
}

TEST(ChromeCountersTest, DrawsMemoryAndTheLoadOfTheHostForPerfetto) {
  TraceBuilder builder;
  builder.run().training_thread = builder.ThreadRow(4700, 4701);
  int64_t time_ns = 1'000;
  for (const int64_t bytes : {3'000'000, 1'000'000, -3'000'000}) {
    builder.Add(Allocation{.time_ns = time_ns++, .bytes = bytes, .thread = 0});
  }
  builder.Add(Allocation{.time_ns = 5'000,
                         .bytes = 512,
                         .total_allocated_bytes = 2'500'000,
                         .total_reserved_bytes = 4'000'000,
                         .device_type = 1,
                         .device = 0,
                         .thread = 0});
  builder.Add(HostUsage{.step = 1,
                        .begin_ns = 1'000,
                        .end_ns = 3'000,
                        .process_cpu_ns = 3'000,
                        .run_delay_ns = 500});
  builder.Add(HostUsage{
      .step = 2, .begin_ns = 3'000, .end_ns = 5'000, .process_cpu_ns = 1'000});
  const Trace trace = builder.Build();
  const std::vector<Event> events = EventsOf(trace, Format::kChromeKineto);
  EXPECT_EQ(
      CurveOf(events, "allocated memory (MB)"),
      (std::vector<std::string>{"4700 1000 3", "4700 1001 4", "4700 1002 1",
                                "GPU 0 Counters 5000 2.5"}));
  EXPECT_EQ(CurveOf(events, "reserved memory (MB)"),
            std::vector<std::string>{"GPU 0 Counters 5000 4"});
  EXPECT_EQ(CurveOf(events, "CPU time of the process (cores)"),
            (std::vector<std::string>{"4700 1000 1.5", "4700 3000 0.5",
                                      "4700 5000 0.5"}));
  EXPECT_EQ(CurveOf(events, "training thread waits for a core (%)"),
            std::vector<std::string>{"4700 1000 25"});
  // The PyTorch plugin draws memory itself.
  EXPECT_TRUE(
      CurveOf(EventsOf(trace, Format::kChromeTb), "allocated memory (MB)")
          .empty());
}

TEST_P(BothGpuFlavours, SaysWhenTheRecordingBeganAndEnded) {
  const Trace trace = SimulatedTraining({.gpu = true});
  int found = 0;
  int64_t begin_ns = 0;
  for (const Event& event : EventsOf(trace, GetParam())) {
    if (event.name == "Iteration Start: PyTorch Profiler") {
      ++found;
      begin_ns = event.begin_ns;
    }
    if (event.name == "Record Window End") {
      ++found;
      EXPECT_EQ(event.begin_ns - begin_ns,
                trace.run().window_end_ns - trace.run().window_begin_ns);
    }
  }
  EXPECT_EQ(found, 2);
}

TEST_P(BothGpuFlavours, ListsTheProcessGroupsThatCommunicated) {
  const std::string file =
      FileOf(SimulatedTraining({.gpu = true, .world_size = 2}), GetParam());
  EXPECT_THAT(file, HasSubstr("\"pg_count\": 1"));
  EXPECT_THAT(file, HasSubstr("\"pg_name\": \"0\""));
  EXPECT_THAT(file, HasSubstr("\"ranks\": [0, 1]"));
  // HTA takes the first match for the rank.
  EXPECT_LT(file.find("\"rank\": 0"), file.find("\"ranks\": "));
}

TEST_P(BothGpuFlavours, PutsNoTextInPlaceOfRanks) {
  for (const char* text : {"[0, 1", "[0,,1]", "[a]", "[]", "0, 1", "[ ]"}) {
    TraceBuilder builder;
    Communication call;
    call.end_ns = 10;
    call.thread = builder.ThreadRow(1, 1);
    call.group_name = builder.Intern("g");
    call.group_ranks = builder.Intern(text);
    builder.run().rank = 0;
    builder.Add(call);
    EXPECT_THAT(FileOf(builder.Build(), GetParam()),
                Not(HasSubstr("\"ranks\"")))
        << text;
  }
}

TEST_P(BothGpuFlavours, KernelsHaveTheNameThatTorchsAnalysisReads) {
  const auto kernels = WithCategory(
      EventsOf(TraceFromText("kernel 0..1 stream=7 k"), GetParam()), "kernel");
  ASSERT_EQ(kernels.size(), 1u);
  if (is_tb()) {
    EXPECT_FALSE(kernels[0].args.contains("name"));
  } else {
    EXPECT_EQ(kernels[0].args.at("name"), "\"k\"");
  }
}

TEST_P(BothGpuFlavours, CompiledKernelsNameTheOperatorsTheyFuse) {
  const auto events = EventsOf(TraceFromText(R"(
    op 0..9 thread=0 code=("/tmp/a.py","XBLOCK=2") triton_poi_fused_add_relu_0
    op 20..29 thread=0 aten::mm
    kernel 30..40 stream=7 triton_poi_fused_add_relu_0
    kernel 40..50 stream=7 gemm
  )"),
                               GetParam());
  const auto kernels = WithCategory(events, "kernel");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].args.at("stepscope.fused_ops"),
            "\"add + relu (compiled)\"");
  EXPECT_FALSE(kernels[1].args.contains("stepscope.fused_ops"));
  const auto ops = WithCategory(events, "cpu_op");
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].args.at("stepscope.fused_ops"), "\"add + relu (compiled)\"");
  EXPECT_EQ(ops[0].args.at("kernel_file"), "\"/tmp/a.py\"");
  EXPECT_EQ(ops[0].args.at("kernel_kwargs"), "\"XBLOCK=2\"");
  EXPECT_FALSE(ops[1].args.contains("kernel_file"));
}

TEST_P(BothGpuFlavours, AddsUpMemoryWhereNoTotalsWereRecorded) {
  const auto events = WithCategory(EventsOf(TraceFromText(R"(
        allocation 10 thread=0 address=1 bytes=100 device_type=1 device=0
        allocation 20 thread=0 address=1 bytes=-100 device_type=1 device=0
      )"),
                                            GetParam()),
                                   "cpu_instant_event");
  ASSERT_EQ(events.size(), 2u);
  if (is_tb()) {
    EXPECT_EQ(events[0].args.at("Total Allocated"), "100");
    EXPECT_EQ(events[1].args.at("Total Allocated"), "0");
    EXPECT_EQ(events[0].args.at("Total Reserved"), "0");
    EXPECT_EQ(events[0].args.at("stepscope.counted"), "2");
  } else {
    EXPECT_FALSE(events[0].args.contains("Total Allocated"));
  }
}

}  // namespace
}  // namespace stepscope::chrome_gpu_test
