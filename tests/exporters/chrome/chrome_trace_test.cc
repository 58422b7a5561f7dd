#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/export.h>
#include <stepscope/trace_builder.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "exporters/chrome/chrome_events.h"
#include "json/json_writer.h"
#include "support/random_trace.h"
#include "support/simulated_training.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace stepscope::chrome_trace_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class BothFlavours : public ::testing::TestWithParam<Format> {
 protected:
  bool is_tb() const { return GetParam() == Format::kChromeTb; }
};
INSTANTIATE_TEST_SUITE_P(Chrome, BothFlavours,
                         ::testing::Values(Format::kChromeTb,
                                           Format::kChromeKineto),
                         [](const auto& format) {
                           return format.param == Format::kChromeTb ? "Tb"
                                                                    : "Kineto";
                         });

TEST_P(BothFlavours, EndsWithTheEventsAndHasRankWithABlank) {
  const std::string file = FileOf(RandomTrace({.rank = 3}), GetParam());
  EXPECT_THAT(file, HasSubstr("\"rank\": 3"));
  EXPECT_TRUE(file.ends_with("}\n  ]\n}\n"));
  EXPECT_LT(file.find("\"stepscope\""), file.find("\"traceEvents\""));
  EXPECT_LT(file.find("\"distributedInfo\""), file.find("\"stepscope\""));
}

TEST_P(BothFlavours, InventsNoRank) {
  EXPECT_THAT(FileOf(TraceFromText("op 1..2 thread=0 a"), GetParam()),
              Not(HasSubstr("distributedInfo")));
}

TEST_P(BothFlavours, WritesAnEmptyTraceThatParses) {
  const std::vector<Event> events = EventsOf(Trace(), GetParam());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].phase, "M");
}

TEST_P(BothFlavours, KeepsNanosecondsExactly) {
  const std::string file = FileOf(
      TraceFromText("op 1763700123456789012..1763700123456790013 thread=0 a"),
      GetParam());
  // 2025-11-21T00:00:00Z
  EXPECT_THAT(file, HasSubstr("\"baseTimeNanoseconds\": 1763683200000000000"));
  EXPECT_THAT(file, HasSubstr("\"ts\": 16923456789.012, \"dur\": 1.001, "));
}

TEST_P(BothFlavours, RanksOfARunShareTheirBaseOverMidnight) {
  const auto base_of = [&](const std::string& run, const char* begin) {
    const std::string file =
        FileOf(TraceFromText("run run_id=" + run + " x\nop " + begin + ".." +
                             begin + " thread=0 a"),
               GetParam());
    const size_t at = file.find("baseTimeNanoseconds");
    return file.substr(at, file.find('\n', at) - at);
  };
  for (const char* run : {"2025_11_21_23_59_58", "resnet_2025_11_21_23_59_58",
                          "of_2024_01_01_00_00_00_2025_11_21_23_59_58_1234"}) {
    const std::string base = base_of(run, "1763769599000000000");
    EXPECT_EQ(base, base_of(run, "1763769601000000000")) << run;
  }
}

TEST_P(BothFlavours, HostileNamesSurvive) {
  TraceBuilder builder;
  const std::vector<std::string> names = {
      "\"quoted\" \\ </script>", std::string("nul\0byte", 8),
      "\x01\x1f\x7f\n\t",        "\u4f60\u597d \U0001F525",
      std::string(70'000, 'x'),  "",
      "]}]} \"rank\": 9",        "\xff bad \xe4\xbd"};
  for (size_t i = 0; i < names.size(); ++i) {
    Op op;
    op.begin_ns = static_cast<int64_t>(i) * 10;
    op.end_ns = op.begin_ns + 5;
    op.thread = builder.ThreadRow(100, 100);
    op.name = builder.Intern(names[i]);
    builder.Add(op);
  }
  const auto ops =
      WithCategory(EventsOf(builder.Build(), GetParam()), "cpu_op");
  ASSERT_EQ(ops.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_EQ(ops[i].name, ValidUtf8(names[i]));
}

TEST_P(BothFlavours, NeverWritesNanOrInfinity) {
  TraceBuilder builder;
  builder.run().op_cost_ns = std::nan("");
  Kernel kernel;
  kernel.end_ns = 10;
  kernel.blocks_per_sm = std::numeric_limits<float>::infinity();
  kernel.warps_per_sm = std::nanf("");
  kernel.occupancy_frac = -std::numeric_limits<float>::infinity();
  kernel.name = builder.Intern("k");
  builder.Add(kernel);
  const auto kernels =
      WithCategory(EventsOf(builder.Build(), GetParam()), "kernel");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_FALSE(kernels[0].args.contains("blocks per SM"));
  EXPECT_FALSE(kernels[0].args.contains("est. achieved occupancy %"));
}

TEST_P(BothFlavours, SlicesOfARowNest) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const std::vector<Event> events =
        EventsOf(RandomTrace({.seed = seed}), GetParam());
    std::map<std::pair<std::string, std::string>, std::vector<int64_t>> open;
    for (const Event& event : events) {
      if (event.phase != "X") continue;
      std::vector<int64_t>& ends_ns = open[{event.pid, event.tid}];
      while (!ends_ns.empty() && ends_ns.back() <= event.begin_ns)
        ends_ns.pop_back();
      if (!ends_ns.empty()) {
        ASSERT_LE(event.end_ns, ends_ns.back()) << event.line;
      }
      ends_ns.push_back(event.end_ns);
    }
  }
}

TEST_P(BothFlavours, ExternalIdsOfOpsAreUnique) {
  std::set<std::string> ids;
  for (const Event& event :
       WithCategory(EventsOf(RandomTrace({.seed = 3}), GetParam()), "cpu_op")) {
    ASSERT_TRUE(event.args.contains("External id")) << event.line;
    EXPECT_TRUE(ids.insert(event.args.at("External id")).second) << event.line;
  }
}

TEST_P(BothFlavours, EveryLaunchedEventHasExactlyOneCall) {
  const std::vector<Event> events =
      EventsOf(RandomTrace({.seed = 4}), GetParam());
  std::map<std::string, int> calls;
  for (const Event& event : events) {
    if (event.category == "Runtime" || event.category.starts_with("cuda_r") ||
        event.category == "cuda_driver") {
      ++calls[event.args.at("correlation")];
    }
  }
  int work = 0;
  for (const Event& event : events) {
    if (event.category != "kernel" && !event.category.starts_with("gpu_mem"))
      continue;
    EXPECT_EQ(event.pid, event.args.at("device"));
    // If a graph's work named a call that launches nothing, it has no call.
    if (event.args.contains("graph id") && !event.args.contains("correlation"))
      continue;
    EXPECT_EQ(calls[event.args.at("correlation")], 1) << event.line;
    ++work;
  }
  EXPECT_GT(work, 100);
}

TEST_P(BothFlavours, ArrowsStartAndEndAtSlicesWrittenBeforeThem) {
  const std::vector<Event> events =
      EventsOf(SimulatedTraining({.gpu = true}), GetParam());
  std::set<std::tuple<std::string, std::string, int64_t>> slices;
  int arrows = 0;
  for (const Event& event : events) {
    if (event.phase == "X")
      slices.emplace(event.pid, event.tid, event.begin_ns);
    if (event.phase != "s" && event.phase != "f") continue;
    EXPECT_TRUE(slices.contains({event.pid, event.tid, event.begin_ns}))
        << event.line;
    ++arrows;
  }
  EXPECT_GT(arrows, 100);
}

TEST_P(BothFlavours, NoUserNameCanPassForAStep) {
  const std::vector<Event> events = EventsOf(TraceFromText(R"(
    step 0..100 thread=0 number=5
    range 1..20 thread=0 ProfilerStep#x
    range 30..40 thread=0 ProfilerStep#6
    op 50..60 thread=0 ProfilerStep#7
  )"),
                                             GetParam());
  int steps = 0;
  for (const Event& event : events) {
    if (event.name.starts_with("ProfilerStep")) {
      ++steps;
      EXPECT_EQ(event.name, "ProfilerStep#5");
      EXPECT_EQ(event.args.at("stepscope.step"), "5");
    }
  }
  EXPECT_EQ(steps, 1);
}

TEST_P(BothFlavours, NumbersItsProcessesClearOfGpus) {
  TraceBuilder builder;
  for (int64_t pid : {1, -7, 0}) {
    Op op;
    op.end_ns = 5;
    op.thread = builder.ThreadRow(pid, pid);
    builder.Add(op);
  }
  std::set<std::string> pids;
  for (const Event& event :
       WithCategory(EventsOf(builder.Build(), GetParam()), "cpu_op")) {
    EXPECT_GE(std::stoll(event.pid), 64);
    EXPECT_GT(std::stoll(event.tid), 0);
    pids.insert(event.pid);
  }
  EXPECT_EQ(pids.size(), 3u);
}

TEST_P(BothFlavours, DrawsAnnotationsAndLossesOnRowsOfTheirOwn) {
  TraceBuilder builder;
  builder.Add(Loss{.name = "buffer-full",
                   .detail = "raise it",
                   .count = 7,
                   .severity = Severity::kWarning});
  // Nothing is missing for lack of a GPU.
  builder.Add(Loss{.name = "no-gpu", .severity = Severity::kNote});
  Op op;
  op.begin_ns = 10;
  op.end_ns = 500;
  op.thread = builder.ThreadRow(100, 100);
  builder.Add(op);
  const std::vector<Annotation> annotations = {
      {.row = "findings",
       .name = "slow",
       .text = "t",
       .begin_ns = 20,
       .end_ns = 30},
      {.row = "findings", .name = "everywhere", .text = "t"}};
  const auto own = WithCategory(
      EventsOf(FileOf(builder.Build(), GetParam(), annotations)), "stepscope");
  ASSERT_EQ(own.size(), 3u);
  // What is about the whole recording is drawn over all of it.
  EXPECT_EQ(own[0].name, "everywhere");
  EXPECT_EQ(own[0].end_ns - own[0].begin_ns, 490);
  EXPECT_EQ(own[1].name, "slow");
  EXPECT_EQ(own[1].end_ns - own[1].begin_ns, 10);
  EXPECT_EQ(own[2].name, "buffer-full");
  EXPECT_EQ(own[2].args.at("text"), "\"raise it (7)\"");
  EXPECT_EQ(own[2].end_ns - own[2].begin_ns, 490);
  EXPECT_EQ(own[0].tid, own[1].tid);
  EXPECT_NE(own[1].tid, own[2].tid);
}

TEST_P(BothFlavours, ListsADeviceForEveryOrdinalThatWorked) {
  const std::string file =
      FileOf(TraceFromText("kernel 1..2 device=3 stream=7 k"), GetParam());
  EXPECT_THAT(file, HasSubstr("{\"id\": 3, "));
  EXPECT_THAT(FileOf(TraceFromText("op 1..2 thread=0 a"), GetParam()),
              HasSubstr("\"deviceProperties\": [],"));
}

TEST(ChromeTbTest, UsesTheCategoriesThePluginKnows) {
  const std::vector<Event> events = EventsOf(
      SimulatedTraining({.gpu = true, .world_size = 2}), Format::kChromeTb);
  EXPECT_TRUE(WithCategory(events, "cuda_runtime").empty());
  EXPECT_FALSE(WithCategory(events, "Runtime").empty());
  for (const Event& event : events) {
    if (event.phase != "X" || event.category == "gpu_user_annotation") continue;
    if (event.name.starts_with("enumerate(DataLoader)") ||
        event.name.starts_with("Optimizer.") ||
        event.name.starts_with("nccl:")) {
      EXPECT_EQ(event.category, "cpu_op") << event.line;
    }
    if (event.category == "Runtime") {
      EXPECT_TRUE(event.args.contains("External id")) << event.line;
    }
  }
}

TEST(ChromeTbTest, TiesCollectiveKernelsToTheirMark) {
  const std::vector<Event> events = EventsOf(
      SimulatedTraining({.gpu = true, .world_size = 2}), Format::kChromeTb);
  std::set<std::string> marks;
  for (const Event& event : events) {
    if (event.name != "nccl:all_reduce") continue;
    marks.insert(event.args.at("External id"));
    EXPECT_EQ(event.args.at("Input Dims"), "[[11689512]]");
    EXPECT_EQ(event.args.at("Input type"), "[\"c10::Half\"]");
  }
  int kernels = 0;
  for (const Event& event : WithCategory(events, "kernel")) {
    if (!event.name.starts_with("nccl")) continue;
    EXPECT_TRUE(marks.contains(event.args.at("External id")));
    EXPECT_EQ(event.args.at("Collective name"), "\"allreduce\"");
    ++kernels;
  }
  EXPECT_EQ(kernels, 3);
}

TEST(ChromeKinetoTest, TiesCollectiveKernelsToRecordParamComms) {
  const std::vector<Event> events = EventsOf(
      SimulatedTraining({.gpu = true, .world_size = 2}), Format::kChromeKineto);
  std::set<std::string> ops;
  for (const Event& event : events)
    if (event.name == "record_param_comms")
      ops.insert(event.args.at("External id"));
  for (const Event& event : WithCategory(events, "kernel"))
    if (event.name.starts_with("nccl")) {
      EXPECT_TRUE(ops.contains(event.args.at("External id")));
    }
  EXPECT_EQ(ops.size(), 3u);
}

TEST(ChromeTbTest, TellsThePluginWhichKernelsUseTensorCores) {
  const Trace trace = TraceFromText(R"(
    kernel 0..1 stream=7 nvjet_hsh_128x256
    kernel 2..3 stream=7 ampere_s1688gemm
    kernel 4..5 stream=7 vectorized_elementwise
    kernel 6..7 stream=7 sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_execute_kernel_ffma
  )");
  const auto tb = WithCategory(EventsOf(trace, Format::kChromeTb), "kernel");
  ASSERT_EQ(tb.size(), 4u);
  EXPECT_EQ(tb[0].name, "nvjet_hsh_128x256 [hmma]");
  EXPECT_EQ(tb[0].args.at("stepscope.name"), "\"nvjet_hsh_128x256\"");
  EXPECT_EQ(tb[1].name, "ampere_s1688gemm");
  EXPECT_EQ(tb[2].name, "vectorized_elementwise");
  // The plugin would take each xmma_gemm for one.
  EXPECT_THAT(tb[3].name, testing::StartsWith("sm80_xmma-gemm_f32f32"));
  const auto kineto =
      WithCategory(EventsOf(trace, Format::kChromeKineto), "kernel");
  EXPECT_EQ(kineto[0].name, "nvjet_hsh_128x256");
}

TEST(ChromeTbTest, ShowsModulesAsPythonWould) {
  const auto modules = WithCategory(EventsOf(TraceFromText(R"(
        range 0..100 thread=0 kind=module detail=Block layer1
        range 10..20 thread=0 kind=module detail=Conv2d layer1.conv1
        range 30..40 thread=0 kind=module detail=Conv2d layer1.conv2
        range 200..300 thread=0 kind=module detail=Block layer1
      )"),
                                             Format::kChromeTb),
                                    "python_function");
  ASSERT_EQ(modules.size(), 4u);
  EXPECT_EQ(modules[0].name, "nn.Module: Block_0");
  EXPECT_EQ(modules[0].args.at("Python parent id"), "null");
  EXPECT_EQ(modules[1].name, "nn.Module: Conv2d_0");
  EXPECT_EQ(modules[1].args.at("Python parent id"),
            modules[0].args.at("Python id"));
  EXPECT_EQ(modules[2].name, "nn.Module: Conv2d_1");
  EXPECT_EQ(modules[3].name, "nn.Module: Block_0");
  EXPECT_EQ(modules[3].args.at("Python module id"),
            modules[0].args.at("Python module id"));
  EXPECT_NE(modules[3].args.at("Python id"), modules[0].args.at("Python id"));
}

TEST(ChromeTbTest, HidesDeviceTypesThatThePluginDiesOf) {
  const Trace trace =
      TraceFromText("allocation 5 thread=0 bytes=64 device_type=6 device=0");
  const auto tb =
      WithCategory(EventsOf(trace, Format::kChromeTb), "cpu_instant_event");
  EXPECT_EQ(tb.at(0).args.at("Device Type"), "1");
  EXPECT_EQ(tb.at(0).args.at("stepscope.device_type"), "6");
  const auto kineto =
      WithCategory(EventsOf(trace, Format::kChromeKineto), "cpu_instant_event");
  EXPECT_EQ(kineto.at(0).args.at("Device Type"), "6");
}

// The engine's range around a node has the same forward op.
TEST(ChromeTraceTest, DrawsOneArrowFromAForwardOpToItsNode) {
  const Trace trace = TraceFromText(R"(
    op 0..100 thread=0 sequence=7 aten::mm
    op 200..300 thread=0 kind=backward sequence=7 "autograd::engine::evaluate_function: MmBackward0"
    op 210..290 thread=0 kind=backward sequence=7 MmBackward0
  )");
  for (const Format format : {Format::kChromeTb, Format::kChromeKineto}) {
    std::vector<Event> ends;
    for (const Event& event : EventsOf(trace, format)) {
      if (event.category == "fwdbwd" && event.phase == "f") {
        ends.push_back(event);
      }
    }
    ASSERT_EQ(ends.size(), 1u);
    EXPECT_EQ(ends[0].begin_ns, 210);
  }
}

}  // namespace
}  // namespace stepscope::chrome_trace_test
