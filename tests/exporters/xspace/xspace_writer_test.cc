#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/export.h>
#include <stepscope/trace_builder.h>

#include <map>
#include <set>

#include "support/random_trace.h"
#include "support/simulated_training.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"
#include "xplane.pb.h"

namespace stepscope::xspace_writer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

xplane::XSpace SpaceOf(const Trace& trace,
                       std::span<const Annotation> annotations = {},
                       const ExportOptions& options = {}) {
  const TempFolder folder;
  const std::string path = folder.path().string() + "/host_rank0.xplane.pb";
  const absl::Status status =
      WriteTrace(trace, annotations, Format::kXSpace, path, options);
  EXPECT_TRUE(status.ok()) << status;
  xplane::XSpace space;
  // Fails on text that is not UTF-8 as well as on broken framing.
  EXPECT_TRUE(space.ParseFromString(ReadBytes(path)));
  return space;
}

const xplane::XPlane* PlaneOf(const xplane::XSpace& space,
                              std::string_view name) {
  for (const auto& plane : space.planes())
    if (plane.name() == name) return &plane;
  return nullptr;
}

const xplane::XLine* LineOf(const xplane::XPlane& plane,
                            std::string_view name) {
  for (const auto& line : plane.lines())
    if (line.name() == name) return &line;
  return nullptr;
}

std::string NameOf(const xplane::XPlane& plane, const xplane::XEvent& event) {
  return plane.event_metadata().at(event.metadata_id()).name();
}

// Returns an event's stats by name, as text.
std::map<std::string, std::string> StatsOf(const xplane::XPlane& plane,
                                           const xplane::XEvent& event) {
  std::map<std::string, std::string> stats;
  for (const auto& stat : event.stats()) {
    std::string& text =
        stats[plane.stat_metadata().at(stat.metadata_id()).name()];
    if (stat.has_int64_value()) text = std::to_string(stat.int64_value());
    if (stat.has_uint64_value())
      text = "u" + std::to_string(stat.uint64_value());
    if (stat.has_double_value()) text = std::to_string(stat.double_value());
    if (stat.has_str_value()) text = stat.str_value();
    if (stat.has_ref_value())
      text = plane.stat_metadata()
                 .at(static_cast<int64_t>(stat.ref_value()))
                 .name();
  }
  return stats;
}

TEST(XSpaceTest, EveryPlaneDeclaresTheGroupIdOrXprofRegroups) {
  const xplane::XSpace space = SpaceOf(SimulatedTraining({.gpu = true}));
  std::set<std::string> planes;
  for (const auto& plane : space.planes()) {
    planes.insert(plane.name());
    bool declared = false;
    for (const auto& [id, stat] : plane.stat_metadata())
      declared |= stat.name() == "group_id";
    EXPECT_TRUE(declared) << plane.name();
  }
  EXPECT_THAT(planes,
              ElementsAre("/device:CUSTOM:stepscope", "/device:GPU:0",
                          "/host:CPU", "/host:metadata", "Task Environment"));
}

TEST(XSpaceTest, NamesTheHostAsTheFileDoes) {
  EXPECT_THAT(SpaceOf(Trace()).hostnames(), ElementsAre("host_rank0"));
}

TEST(XSpaceTest, EventsOfALineAreSortedAndWithinTheProfile) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const xplane::XSpace space =
        SpaceOf(RandomTrace({.seed = seed, .bad_utf8 = true}));
    for (const auto& plane : space.planes()) {
      for (const auto& line : plane.lines()) {
        EXPECT_EQ(line.timestamp_ns(), 0);
        int64_t before_ps = 0;
        for (const auto& event : line.events()) {
          EXPECT_GE(event.offset_ps(), before_ps) << line.name();
          EXPECT_GE(event.duration_ps(), 0);
          EXPECT_TRUE(plane.event_metadata().contains(event.metadata_id()));
          before_ps = event.offset_ps();
        }
      }
    }
  }
}

TEST(XSpaceTest, HoldsEveryHostRowOnce) {
  const Trace trace = RandomTrace({.seed = 6});
  const xplane::XSpace space = SpaceOf(trace);
  size_t events = 0;
  for (const auto& line : PlaneOf(space, "/host:CPU")->lines())
    events += static_cast<size_t>(line.events_size());
  EXPECT_EQ(events,
            trace.steps().size() + trace.ranges().size() + trace.ops().size() +
                trace.runtime_calls().size() + trace.overheads().size() +
                trace.python_frames().size() + trace.allocations().size());
}

TEST(XSpaceTest, CpuStepsAreHostWindowsWithTheirRealNumbers) {
  const xplane::XSpace space = SpaceOf(TraceFromText(R"(
    step 1000..2000 thread=0 number=41
    step 2000..3500 thread=0 number=42
  )"));
  const xplane::XPlane& host = *PlaneOf(space, "/host:CPU");
  ASSERT_EQ(host.lines_size(), 1);
  const xplane::XEvent& step = host.lines(0).events(1);
  EXPECT_THAT(NameOf(host, step), StartsWith("train"));
  EXPECT_EQ(step.offset_ps(), 1000 * 1000);
  EXPECT_EQ(step.duration_ps(), 1500 * 1000);
  EXPECT_EQ(StatsOf(host, step)["group_id"], "42");
  EXPECT_EQ(StatsOf(host, step)["step_name"], "42");
}

TEST(XSpaceTest, NoUserNameCanPassForAStep) {
  const xplane::XSpace space = SpaceOf(TraceFromText(R"(
    step 0..100 thread=0 number=1
    range 1..9 thread=0 train epoch
    range 10..19 thread=0 test set
  )"));
  const xplane::XPlane& host = *PlaneOf(space, "/host:CPU");
  int steps = 0;
  for (const auto& event : host.lines(0).events()) {
    const std::string name = NameOf(host, event);
    steps += name.starts_with("train") || name.starts_with("test");
  }
  EXPECT_EQ(steps, 1);
}

TEST(XSpaceTest, GpuStepsTileTheTimeline) {
  const xplane::XSpace space = SpaceOf(TraceFromText(R"(
    step 0..100 thread=0 number=5
    step 100..200 thread=0 number=6
    runtime_call 50..60 thread=0 correlation=1 cudaLaunchKernel
    runtime_call 150..160 thread=0 correlation=2 cudaLaunchKernel
    kernel 70..130 stream=7 correlation=1 k
    kernel 160..250 stream=7 correlation=2 k
  )"));
  const xplane::XPlane& gpu = *PlaneOf(space, "/device:GPU:0");
  const xplane::XLine& steps = *LineOf(gpu, "Steps");
  EXPECT_EQ(steps.id(), -559038737);
  ASSERT_EQ(steps.events_size(), 2);
  EXPECT_EQ(steps.events(0).offset_ps(), 0);
  EXPECT_EQ(steps.events(0).duration_ps(), 130'000);
  EXPECT_EQ(steps.events(1).offset_ps(), 130'000);
  EXPECT_EQ(steps.events(1).duration_ps(), 120'000);
  EXPECT_EQ(NameOf(gpu, steps.events(1)), "6");
  // The first kernel continues into step 6, but step 5 launched it.
  const xplane::XLine& stream = *LineOf(gpu, "Stream #7(Kernel)");
  EXPECT_EQ(StatsOf(gpu, stream.events(0))["group_id"], "5");
}

TEST(XSpaceTest, LaunchAndKernelShareAFlow) {
  const xplane::XSpace space = SpaceOf(SimulatedTraining({.gpu = true}));
  const auto flows_of = [](const xplane::XPlane& plane) {
    std::set<uint64_t> ids;
    for (const auto& line : plane.lines()) {
      for (const auto& event : line.events()) {
        const std::string flow = StatsOf(plane, event)["flow"];
        if (!flow.empty())
          ids.insert((std::stoull(flow.substr(1)) >> 2) & ((1ULL << 56) - 1));
      }
    }
    return ids;
  };
  const auto launches = flows_of(*PlaneOf(space, "/host:CPU"));
  EXPECT_GT(launches.size(), 50u);
  EXPECT_EQ(launches, flows_of(*PlaneOf(space, "/device:GPU:0")));
}

TEST(XSpaceTest, NamesCopiesAsXprofClassifiesThem) {
  const xplane::XSpace space = SpaceOf(TraceFromText(R"t(
    copy 0..10 stream=7 source=pageable destination=device bytes=64 ""
    copy 20..30 stream=7 bytes=32 "Memcpy DtoH (Device -> Pinned)"
    memset 40..50 stream=7 correlation=9 ""
  )t"));
  const xplane::XPlane& gpu = *PlaneOf(space, "/device:GPU:0");
  const xplane::XLine& stream =
      *LineOf(gpu, "Stream #7(MemcpyD2H,MemcpyH2D,Memset)");
  EXPECT_EQ(NameOf(gpu, stream.events(0)), "MEMCPYHtoD");
  EXPECT_THAT(StatsOf(gpu, stream.events(0))["memcpy_details"],
              StartsWith("num_bytes:64\nkind_src:pageable kind_dst:device"));
  EXPECT_EQ(NameOf(gpu, stream.events(1)), "MEMCPYDtoH");
  // With a correlation ID, a memset would count as compute.
  EXPECT_FALSE(StatsOf(gpu, stream.events(2)).contains("correlation_id"));
}

TEST(XSpaceTest, KernelsCarryWhatKernelStatsReads) {
  const xplane::XSpace space = SpaceOf(SimulatedTraining({.gpu = true}));
  const xplane::XPlane& gpu = *PlaneOf(space, "/device:GPU:0");
  const xplane::XLine& stream = *LineOf(gpu, "Stream #7(Kernel,MemcpyH2D)");
  bool seen = false;
  for (const auto& event : stream.events()) {
    auto stats = StatsOf(gpu, event);
    if (!NameOf(gpu, event).starts_with("sm90_xmma_fprop")) continue;
    seen = true;
    EXPECT_THAT(NameOf(gpu, event), testing::EndsWith(" [hmma]"));
    EXPECT_THAT(gpu.event_metadata().at(event.metadata_id()).display_name(),
                Not(HasSubstr("hmma")));
    EXPECT_EQ(stats["kernel_details"],
              "regs:96 static_shared:0 dynamic_shared:49152 grid:256,4,1 "
              "block:128,1,1 occ_pct:37.5");
    EXPECT_EQ(stats["shape"], "(half[32,64,56,56])");
    EXPECT_THAT(stats["correlation_id"], StartsWith("u"));
  }
  EXPECT_TRUE(seen);
}

TEST(XSpaceTest, WaitsForDataCountAsInputOnAGpuRun) {
  const xplane::XSpace space = SpaceOf(SimulatedTraining({.gpu = true}));
  const xplane::XPlane& gpu = *PlaneOf(space, "/device:GPU:0");
  const xplane::XLine& waits = *LineOf(gpu, "stepscope: input wait");
  ASSERT_EQ(waits.events_size(), 3);
  auto stats = StatsOf(gpu, waits.events(0));
  EXPECT_THAT(NameOf(gpu, waits.events(0)), StartsWith("MEMCPYHtoD"));
  EXPECT_TRUE(stats.contains("correlation_id"));
  EXPECT_THAT(stats["note"], HasSubstr("not a copy"));
}

TEST(XSpaceTest, WaitsForDataCanBeLeftOut) {
  const xplane::XSpace space =
      SpaceOf(SimulatedTraining({.gpu = true}), {}, {.input_wait = false});
  EXPECT_EQ(LineOf(*PlaneOf(space, "/device:GPU:0"), "stepscope: input wait"),
            nullptr);
}

TEST(XSpaceTest, MemoryEventsCarryRunningTotals) {
  const xplane::XSpace space = SpaceOf(TraceFromText(R"(
    op 0..100 thread=0 aten::empty
    allocation 10 thread=0 address=64 bytes=100 device=-1
    allocation 20 thread=0 address=128 bytes=50 device=-1
    allocation 30 thread=0 address=64 bytes=-100 device=-1
  )"));
  const xplane::XPlane& host = *PlaneOf(space, "/host:CPU");
  const xplane::XLine& memory = *LineOf(host, "memory");
  ASSERT_EQ(memory.events_size(), 3);
  EXPECT_EQ(NameOf(host, memory.events(2)), "MemoryDeallocation");
  auto stats = StatsOf(host, memory.events(2));
  EXPECT_EQ(stats["bytes_allocated"], "50");
  EXPECT_EQ(stats["peak_bytes_in_use"], "150");
  EXPECT_EQ(stats["allocation_bytes"], "100");
  EXPECT_EQ(stats["allocator_name"], "CPU");
  EXPECT_EQ(StatsOf(host, memory.events(0))["tf_op"], "aten::empty");
  // The totals are sums: the allocator's own were not recorded.
  EXPECT_EQ(stats["stepscope.counted"], "1");
}

TEST(XSpaceTest, OpsAreNamedByModuleAndType) {
  const xplane::XSpace space = SpaceOf(TraceFromText(R"(
    thread 0 pid=1 tid=1 torch_thread=1 main
    range 0..50 thread=0 kind=module detail=Conv2d layer1.0.conv1
    op 10..20 thread=0 sequence=7 aten::conv2d
    op 60..70 thread=0 kind=backward sequence=7 forward_thread=1 "autograd::engine::evaluate_function: ConvolutionBackward0"
    op 80..90 thread=0 odd name!
  )"));
  const xplane::XPlane& host = *PlaneOf(space, "/host:CPU");
  std::vector<std::string> ops;
  for (const auto& event : host.lines(0).events())
    if (auto stats = StatsOf(host, event); stats.contains("tf_op"))
      ops.push_back(stats["tf_op"]);
  EXPECT_THAT(ops, ElementsAre("layer1/0/conv1/Conv2D:conv2d",
                               "layer1/0/conv1/gradients/"
                               "autograd__engine__evaluate_function__"
                               "ConvolutionBackward0:ConvolutionBackward0",
                               "odd_name_:odd_name_"));
}

TEST(XSpaceTest, AdviceIsOneEscapedBanner) {
  const std::vector<Annotation> annotations = {
      {.row = "findings", .name = "a<b>", .text = "x & y\nz"},
      {.row = "findings",
       .name = "slice",
       .text = "",
       .begin_ns = 1,
       .end_ns = 2}};
  TraceBuilder builder;
  builder.Add(Loss{.name = "buffer-full", .detail = "raise it"});
  const xplane::XSpace space = SpaceOf(builder.Build(), annotations);
  ASSERT_EQ(space.warnings_size(), 1);
  EXPECT_THAT(space.warnings(0), HasSubstr("a&lt;b&gt;</b>: x &amp; y<br>z"));
  EXPECT_THAT(space.warnings(0), HasSubstr("buffer-full"));
  EXPECT_THAT(space.warnings(0), Not(HasSubstr("slice")));
  EXPECT_EQ(SpaceOf(Trace()).warnings_size(), 0);
}

}  // namespace
}  // namespace stepscope::xspace_writer_test
