// Tests what GPU runs add to an XSpace: costs, counters, and a bounded size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/op_cost.h>
#include <stepscope/trace_builder.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "support/random_trace.h"
#include "support/simulated_training.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"
#include "xplane.pb.h"
#include "xspace/writer/xspace_host.h"
#include "xspace/writer/xspace_writer.h"

namespace stepscope::xspace_gpu_test {
namespace {

using ::testing::HasSubstr;

struct Written {
  absl::Status status;
  xplane::XSpace space;
  size_t bytes = 0;
};

Written Write(const Trace& trace, const XSpaceOptions& options = {}) {
  const TempFolder folder;
  const std::string path = folder.path().string() + "/h.xplane.pb";
  auto sink = FileSink::Make(path, FileSink::Compression::kNone);
  EXPECT_TRUE(sink.ok());
  Written written;
  written.status = WriteXSpace(trace, {}, options, **sink);
  if (!written.status.ok()) return written;
  EXPECT_TRUE((*sink)->Close().ok());
  const std::string bytes = ReadBytes(path);
  EXPECT_TRUE(written.space.ParseFromString(bytes));
  written.bytes = bytes.size();
  return written;
}

const xplane::XPlane& PlaneOf(const xplane::XSpace& space,
                              std::string_view name) {
  for (const auto& plane : space.planes())
    if (plane.name() == name) return plane;
  static const xplane::XPlane none;
  return none;
}

using Stats = std::map<std::string, xplane::XStat>;
Stats StatsOf(const xplane::XPlane& plane, const xplane::XEvent& event) {
  Stats stats;
  for (const auto& stat : event.stats())
    stats[plane.stat_metadata().at(stat.metadata_id()).name()] = stat;
  return stats;
}

std::string TextOf(const xplane::XPlane& plane, const xplane::XStat& stat) {
  return plane.stat_metadata()
      .at(static_cast<int64_t>(stat.ref_value()))
      .name();
}

// Returns a device's kernels by name, each with its stats.
std::multimap<std::string, Stats> KernelsOf(const xplane::XPlane& gpu) {
  std::multimap<std::string, Stats> kernels;
  for (const auto& line : gpu.lines()) {
    for (const auto& event : line.events()) {
      Stats stats = StatsOf(gpu, event);
      if (stats.contains("kernel_details"))
        kernels.emplace(gpu.event_metadata().at(event.metadata_id()).name(),
                        std::move(stats));
    }
  }
  return kernels;
}

TEST(XSpaceSpanTest, RefusesEventsFurtherApartThanPicosecondsCount) {
  const auto with_second_at = [](int64_t days) {
    const int64_t ns = days * 86'400'000'000'000;
    return Write(TraceFromText("op 0..1000 thread=0 aten::add\nop " +
                               std::to_string(ns) + ".." +
                               std::to_string(ns + 1000) +
                               " thread=0 aten::add\n"))
        .status;
  };
  EXPECT_TRUE(with_second_at(106).ok());
  const absl::Status status = with_second_at(107);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("spans 107 days"));
}

// XProf's op tables use tf_op. The operator that replays the graph would tell
// nothing.
TEST(XSpaceGraphTest, AGraphKernelHasTheOpAndTheModuleOfItsCapture) {
  const Written written = Write(TraceFromText(R"(
    op 0..100 thread=0 replay
    runtime_call 10..20 thread=0 correlation=1 cudaGraphLaunch
    kernel 200..260 stream=7 correlation=1 graph=3 graph_node=1 captured_ops=("aten::addmm","aten::linear") captured_module=net.fc one
    kernel 260..270 stream=7 correlation=1 graph=3 graph_node=2 captured_ops=("aten::mm","AddmmBackward0") captured_module=net.fc two
    kernel 270..280 stream=7 correlation=1 graph=3 graph_node=3 captured_module=net.act three
    kernel 280..290 stream=7 correlation=1 graph=3 graph_node=4 four
  )"));
  ASSERT_TRUE(written.status.ok());
  const auto& plane = PlaneOf(written.space, "/device:GPU:0");
  std::map<std::string, std::string> ops;
  for (auto [name, stats] : KernelsOf(plane)) {
    ops[name] = TextOf(plane, stats["tf_op"]);
  }
  EXPECT_EQ(ops["one"], "net/fc/MatMul:addmm");
  EXPECT_EQ(ops["two"], "net/fc/gradients/MatMul:mm");
  EXPECT_EQ(ops["three"], "net/act/captured:captured");
  EXPECT_EQ(ops["four"], "replay:replay");
}

// In a torch.profiler recording, an op of the kernel's name launches the
// kernel. In ours, the compiled region does.
TEST(XSpaceCompiledTest, CompiledKernelsNameTheOperatorsTheyFuse) {
  const Written written = Write(TraceFromText(R"(
    op 0..100 thread=0 code=("/tmp/ab/cab.py","XBLOCK=2") triton_poi_fused_add_relu_0
    op 200..300 thread=0 region
    runtime_call 10..20 thread=0 correlation=1 cuLaunchKernelEx
    runtime_call 210..220 thread=0 correlation=2 cuLaunchKernelEx
    kernel 400..460 stream=7 correlation=1 triton_poi_fused_add_relu_0
    kernel 500..510 stream=7 correlation=2 triton_per_fused__softmax_1
    kernel 600..610 stream=7 correlation=2 gemm
  )"));
  ASSERT_TRUE(written.status.ok());
  const auto& plane = PlaneOf(written.space, "/device:GPU:0");
  std::map<std::string, std::string> ops, fused;
  for (auto [name, stats] : KernelsOf(plane)) {
    ops[name] = TextOf(plane, stats["tf_op"]);
    if (stats.contains("fused_ops")) {
      fused[name] = TextOf(plane, stats["fused_ops"]);
    }
  }
  EXPECT_EQ(ops["triton_poi_fused_add_relu_0"],
            "triton_poi_fused_add_relu_0:add_relu");
  EXPECT_EQ(ops["triton_per_fused__softmax_1"], "region:region");
  const std::map<std::string, std::string> expected = {
      {"triton_poi_fused_add_relu_0", "add + relu (compiled)"},
      {"triton_per_fused__softmax_1", "_softmax (compiled)"}};
  EXPECT_EQ(fused, expected);
}

TEST(XSpaceCostTest, AllFlopsOfAnOpGoToTheKernelsThatMultiply) {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(1, 1);
  const auto tensor = [&](std::vector<int64_t> dims) {
    return Argument{.type = builder.Intern("float"), .dims = std::move(dims)};
  };
  Op op = {.begin_ns = 0, .end_ns = 100, .thread = thread};
  op.name = builder.Intern("aten::mm");
  op.inputs = builder.InternInputs({{tensor({64, 32}), tensor({32, 16})}});
  builder.Add(op);
  int64_t correlation = 0;
  for (const char* name :
       {"nchwToNhwcKernel", "ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>"}) {
    RuntimeCall call;
    call.begin_ns = 10 + 10 * correlation;
    call.end_ns = call.begin_ns + 5;
    call.thread = thread;
    call.correlation = ++correlation;
    call.name = builder.Intern("cudaLaunchKernel");
    builder.Add(call);
    Kernel kernel;
    kernel.begin_ns = 100 * correlation;
    kernel.end_ns = kernel.begin_ns + 50;
    kernel.correlation = correlation;
    kernel.name = builder.Intern(name);
    builder.Add(kernel);
  }
  const Written written = Write(builder.Build());
  const auto kernels = KernelsOf(PlaneOf(written.space, "/device:GPU:0"));
  ASSERT_EQ(kernels.size(), 4u);
  constexpr uint64_t kFlops = 2 * 64 * 32 * 16;
  uint64_t sum = 0;
  for (auto [name, stats] : kernels) {
    const uint64_t flops = stats["flops"].uint64_value();
    sum += flops;
    EXPECT_EQ(flops, name.starts_with("nchw") ? 0 : (kFlops + 1) / 3) << name;
    EXPECT_NEAR(stats["gflop"].double_value(),
                static_cast<double>(flops) * 1e-9, 1e-9);
  }
  EXPECT_NEAR(static_cast<double>(sum), kFlops, 2);
}

TEST(XSpaceCostTest, CostsAreThoseOfTheOpsThatLaunched) {
  const Trace trace = SimulatedTraining({.gpu = true});
  const Written written = Write(trace);
  double written_flops = 0;
  for (auto [name, stats] :
       KernelsOf(PlaneOf(written.space, "/device:GPU:0"))) {
    written_flops += static_cast<double>(stats["flops"].uint64_value());
  }
  double flops = 0;  // each simulated op launches one kernel
  for (const Kernel& kernel : trace.kernels())
    flops += std::max(0.0, CostOf(trace, kernel.op).flops);
  EXPECT_GT(flops, 1e9);
  EXPECT_NEAR(written_flops, flops, 1e-6 * flops);
}

TEST(XSpaceCostTest, EveryKernelOfAnOpNamesAnInstructionOfTheProgram) {
  const Written written = Write(SimulatedTraining({.gpu = true}));
  const xplane::XPlane& gpu = PlaneOf(written.space, "/device:GPU:0");
  const xplane::XPlane& program = PlaneOf(written.space, "/host:metadata");
  ASSERT_EQ(program.event_metadata_size(), 1);
  const auto& module = program.event_metadata().begin()->second;
  EXPECT_EQ(module.name(), "stepscope(1)");
  std::string proto;
  for (const auto& stat : module.stats())
    if (stat.has_bytes_value()) proto = stat.bytes_value();
  std::set<std::string> names;
  for (auto [kernel, stats] : KernelsOf(gpu)) {
    ASSERT_TRUE(stats.contains("hlo_op")) << kernel;
    const std::string name = TextOf(gpu, stats["hlo_op"]);
    names.insert(name);
    EXPECT_THAT(proto, HasSubstr(name));
    EXPECT_EQ(stats["program_id"].uint64_value(), 1u);
    // XProf replaces all other characters and then finds no match.
    EXPECT_EQ(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "abcdefghijklmnopqrstuvwxyz"
                                     "0123456789_.-"),
              std::string::npos)
        << name;
  }
  EXPECT_GT(names.size(), 5u);
}

TEST(XSpaceCostTest, LaunchesThatShareAnInstructionCostTheSame) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Written written = Write(RandomTrace({.seed = seed}));
    for (const auto& plane : written.space.planes()) {
      std::map<std::string, uint64_t> flops;
      for (auto [kernel, stats] : KernelsOf(plane)) {
        if (!stats.contains("hlo_op")) continue;
        const uint64_t own = stats["flops"].uint64_value();
        const auto [it, added] =
            flops.emplace(TextOf(plane, stats["hlo_op"]), own);
        EXPECT_EQ(it->second, own);
      }
    }
  }
}

TEST(XSpaceGpuTest, AKernelOfNoLengthLastsANanosecondOrXprofDropsIt) {
  const Written written = Write(TraceFromText(R"(
    kernel 70..70 stream=7 correlation=1 k
  )"));
  const auto& line = PlaneOf(written.space, "/device:GPU:0").lines(0);
  EXPECT_EQ(line.events(0).duration_ps(), 1000);
}

TEST(XSpaceGpuTest, AKnownDeviceOfAFileHasItsDatasheetsPeaks) {
  const auto peaks = [](const Device& device) {
    TraceBuilder builder;
    builder.run().devices = {device};
    Kernel kernel;
    kernel.end_ns = 1000;
    builder.Add(kernel);
    const Written written = Write(builder.Build());
    const xplane::XPlane& gpu = PlaneOf(written.space, "/device:GPU:0");
    Stats stats;
    for (const auto& stat : gpu.stats())
      stats[gpu.stat_metadata().at(stat.metadata_id()).name()] = stat;
    return stats;
  };
  Device device;
  device.name = "NVIDIA H100 80GB HBM3";
  Stats stats = peaks(device);
  EXPECT_EQ(stats["peak_teraflops_per_second"].double_value(), 989);
  EXPECT_EQ(stats["memory_bandwidth"].uint64_value(), 3'350'000'000'000u);
  // Numbers from the driver take precedence; XProf derives the rest from the
  // clock.
  device.clock_khz = 1'980'000;
  device.memory_bandwidth_bytes_per_s = 7;
  stats = peaks(device);
  EXPECT_FALSE(stats.contains("peak_teraflops_per_second"));
  EXPECT_EQ(stats["memory_bandwidth"].uint64_value(), 7u);
  EXPECT_FALSE(
      peaks({.name = "Some GPU"}).contains("peak_teraflops_per_second"));
}

TEST(XSpaceGpuTest, OnlyCopiesOfKnownDirectionCount) {
  const Written written = Write(TraceFromText(R"t(
    copy 0..10 stream=7 correlation=1 "Memcpy PtoP (Device -> Device)"
    copy 20..30 stream=7 correlation=2 "something else"
  )t"));
  const xplane::XPlane& gpu = PlaneOf(written.space, "/device:GPU:0");
  const auto& line = gpu.lines(0);
  ASSERT_EQ(line.events_size(), 2);
  EXPECT_EQ(gpu.event_metadata().at(line.events(0).metadata_id()).name(),
            "MEMCPYDtoD");
  EXPECT_TRUE(StatsOf(gpu, line.events(0)).contains("correlation_id"));
  EXPECT_FALSE(StatsOf(gpu, line.events(1)).contains("correlation_id"));
}

TEST(XSpaceGpuTest, UploadsAreMarkedAsEnqueuedInput) {
  const Written written = Write(SimulatedTraining({.gpu = true}));
  const xplane::XPlane& host = PlaneOf(written.space, "/host:CPU");
  size_t uploads = 0;
  for (const auto& line : host.lines()) {
    for (const auto& event : line.events()) {
      Stats stats = StatsOf(host, event);
      if (!stats.contains("_ipl_stage_cat") ||
          TextOf(host, stats["_ipl_stage_cat"]) != "enqueue") {
        continue;
      }
      ++uploads;
      EXPECT_EQ(host.event_metadata().at(event.metadata_id()).name(),
                "cudaMemcpyAsync");
      EXPECT_EQ(stats["device_id"].int64_value(), 0);
    }
  }
  EXPECT_EQ(uploads, 3u);
}

TEST(XSpaceGpuTest, CountersHaveOneValueUnderTheirOwnName) {
  TraceBuilder builder;
  Kernel kernel;
  kernel.end_ns = 1000;
  kernel.device = 2;
  builder.Add(kernel);
  DeviceSample sample;
  sample.time_ns = 500;
  sample.device = 2;
  sample.sm_clock_mhz = 1755;
  sample.power_mw = 312'500;
  sample.pcie_sent_bytes_per_s = 7'500'000'000;
  sample.nvlink_received_bytes_per_s = 500'000'000;
  sample.counted_ns = 400;
  sample.tensor_active_frac = 0.25F;
  sample.dram_frac = 0.5F;
  builder.Add(sample);
  const Written written = Write(builder.Build());
  const xplane::XPlane& gpu = PlaneOf(written.space, "/device:GPU:2");
  const auto& line = gpu.lines(gpu.lines_size() - 1);
  EXPECT_EQ(line.name(), "_counters_");
  std::map<std::string, double> values;
  for (const auto& event : line.events()) {
    EXPECT_EQ(event.offset_ps(), 500'000);
    ASSERT_EQ(event.stats_size(), 1);
    const std::string name =
        gpu.event_metadata().at(event.metadata_id()).name();
    const Stats stats = StatsOf(gpu, event);
    ASSERT_TRUE(stats.contains(name));
    values[name] = stats.at(name).double_value();
  }
  const std::map<std::string, double> expected = {
      {"SM clock (MHz)", 1755},        {"power (W)", 312.5},
      {"PCIe sent (GB/s)", 7.5},       {"NVLink received (GB/s)", 0.5},
      {"Tensor Cores active (%)", 25}, {"memory bandwidth (%)", 50}};
  ASSERT_EQ(values.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_DOUBLE_EQ(values[name], value) << name;
  }
}

// Returns a Trace with 300 Python frames, 300 short ops and 3 long ones.
Trace ManyHostRows() {
  TraceBuilder builder;
  const RowId thread = builder.ThreadRow(1, 1);
  for (int64_t i = 0; i < 303; ++i) {
    PythonFrame frame;
    frame.begin_ns = 10'000 * i;
    frame.end_ns = frame.begin_ns + 9'000;
    frame.python_id = i;
    frame.name = builder.Intern("train.py(1): f");
    frame.thread = thread;
    if (i < 300) builder.Add(frame);
    Op op;
    op.begin_ns = frame.begin_ns + 1'000;
    op.end_ns = op.begin_ns + (i < 300 ? kShortOpNs - 1 : kShortOpNs);
    op.name = builder.Intern("aten::add");
    op.thread = thread;
    builder.Add(op);
  }
  return builder.Build();
}

XSpaceOptions AtMost(size_t bytes) {
  XSpaceOptions options;
  options.most_bytes = bytes + (1 << 16);  // the room kept for the banner
  return options;
}

int HostEvents(const Written& written) {
  return PlaneOf(written.space, "/host:CPU").lines(0).events_size();
}

TEST(XSpaceSizeTest, LeavesOutPythonFramesFirst) {
  const Trace trace = ManyHostRows();
  const Written whole = Write(trace);
  EXPECT_EQ(HostEvents(whole), 603);
  EXPECT_EQ(whole.space.warnings_size(), 0);
  const Written written = Write(trace, AtMost(whole.bytes - 1000));
  ASSERT_TRUE(written.status.ok()) << written.status;
  EXPECT_EQ(HostEvents(written), 303);
  ASSERT_EQ(written.space.warnings_size(), 1);
  EXPECT_THAT(written.space.warnings(0), HasSubstr("Python frames: XProf"));
}

TEST(XSpaceSizeTest, LeavesOutShortOpsNext) {
  const Trace trace = ManyHostRows();
  const size_t whole = Write(trace).bytes;
  const size_t without_frames = Write(trace, AtMost(whole - 1000)).bytes;
  const Written written = Write(trace, AtMost(without_frames - 1000));
  ASSERT_TRUE(written.status.ok()) << written.status;
  EXPECT_EQ(HostEvents(written), 3);
  EXPECT_THAT(written.space.warnings(0), HasSubstr("ops under 2 us"));
}

TEST(XSpaceSizeTest, RefusesWhatXprofCannotOpen) {
  const Written written = Write(SimulatedTraining({.gpu = true}), AtMost(5000));
  EXPECT_EQ(written.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(written.status.message()), HasSubstr("2 GiB"));
}

}  // namespace
}  // namespace stepscope::xspace_gpu_test
