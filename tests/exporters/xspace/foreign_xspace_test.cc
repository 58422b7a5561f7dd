// Compares XSpaces of other profilers with the numbers of an independent
// reader.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/read.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/real_trace_path.h"

namespace stepscope::foreign_xspace_test {
namespace {

namespace dom = simdjson::dom;

struct Sum {
  int64_t events = 0;
  int64_t ns = 0;
  bool operator==(const Sum&) const = default;
};

template <typename Row>
void AddTo(Sum& sum, const Row& row) {
  ++sum.events;
  if constexpr (requires { row.end_ns; }) sum.ns += row.end_ns - row.begin_ns;
}

// Sums over the rows of each thread and each stream.
struct Sums {
  explicit Sums(const Trace& trace) {
    const auto host = [&](const auto& rows) {
      for (const auto& row : rows) {
        if (row.thread != kNone)
          AddTo(threads[trace.threads()[row.thread].tid], row);
      }
    };
    const auto device = [&](const auto& rows) {
      for (const auto& row : rows)
        AddTo(streams[{row.device, row.stream}], row);
    };
    host(trace.steps());
    host(trace.ranges());
    host(trace.ops());
    host(trace.runtime_calls());
    host(trace.python_frames());
    host(trace.allocations());
    host(trace.overheads());
    device(trace.kernels());
    device(trace.copies());
    device(trace.memsets());
  }
  std::map<int64_t, Sum> threads;
  std::map<std::pair<int32_t, int64_t>, Sum> streams;
};

class ForeignXSpaceTest : public testing::TestWithParam<std::string> {};

TEST_P(ForeignXSpaceTest, HasTheLinesEventsAndTimesOfAnIndependentReader) {
  const std::string path = RealTracePath("xplane/" + GetParam());
  if (path.empty()) {
    GTEST_SKIP() << GetParam() << " is not committed and not in ../shared/"
                 << "traces; STEPSCOPE_TRACES can name its folder";
  }
  dom::parser parser;
  const dom::object figures = dom::object(
      parser.load(STEPSCOPE_TEST_DATA "/traces/xplane/expected.json"));
  const dom::object wanted = dom::object(figures[GetParam()]);
  const absl::StatusOr<Trace> trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_TRUE(trace->losses().empty());
  EXPECT_EQ(trace->run().host, std::string_view(wanted["hostname"]));
  EXPECT_EQ(trace->run().rank, -1);

  const Sums sums(*trace);
  size_t lines = 0;
  size_t devices = 0;
  for (dom::key_value_pair plane : dom::object(wanted["planes"])) {
    const std::string name(plane.key);
    const bool is_device = name.starts_with("/device:GPU:");
    devices += is_device;
    for (dom::array line : plane.value["detail"]) {
      const auto id = int64_t(line.at(0));
      if (id >= -559038737 && id <= -559038348) continue;  // derived
      const Sum got = is_device
                          ? sums.streams.at({std::stoi(name.substr(12)), id})
                          : sums.threads.at(id);
      const Sum figure = {int64_t(line.at(2)),
                          std::llround(double(line.at(3)) * 1000)};
      EXPECT_EQ(got.events, figure.events) << name << " line " << id;
      EXPECT_EQ(got.ns, figure.ns) << name << " line " << id;
      ++lines;
    }
  }
  EXPECT_EQ(sums.threads.size() + sums.streams.size(), lines);
  EXPECT_EQ(trace->run().devices.size(), devices);
}

INSTANTIATE_TEST_SUITE_P(Files, ForeignXSpaceTest,
                         testing::Values("jax_conv_mi300x.xplane.pb",
                                         "gpu_multi_worker.xplane.pb"),
                         [](const auto& file) {
                           return file.param.substr(0, file.param.find('.'));
                         });

TEST(JaxXSpaceTest, LinksKernelsToTheirLaunchesAndKnowsTheDevice) {
  const absl::StatusOr<Trace> trace =
      ReadTrace(RealTracePath("xplane/jax_conv_mi300x.xplane.pb"));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  int64_t linked = 0;
  for (const Kernel& kernel : trace->kernels()) linked += kernel.call != kNone;
  EXPECT_EQ(linked, static_cast<int64_t>(trace->kernels().size()));
  EXPECT_EQ(trace->run().devices[0].vendor, "AMD");
  EXPECT_EQ(trace->run().devices[0].sm_count, 304);
  const auto fusion =
      std::ranges::find_if(trace->kernels(), [&](const Kernel& kernel) {
        return trace->name(kernel.name) == "input_transpose_fusion_1.kd";
      });
  ASSERT_NE(fusion, trace->kernels().end());
  EXPECT_EQ(fusion->grid, (std::array<int32_t, 3>{6240, 1, 1}));
  EXPECT_EQ(fusion->shared_memory_bytes, 2112);
}

}  // namespace
}  // namespace stepscope::foreign_xspace_test
