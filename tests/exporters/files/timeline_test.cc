// Tests one Perfetto file with several Traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/timeline.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/random_trace.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace stepscope::timeline_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// A rank that launches the kernel of an all-reduce on GPU 0.
Trace Rank(const std::string& kernel_times) {
  return TraceFromText(R"(
    thread 0 pid=40 tid=41
    runtime_call 100..200 thread=0 correlation=1 cudaLaunchKernel
    kernel )" + kernel_times +
                       R"( device=0 stream=7 correlation=1 ncclAllReduce
  )");
}

struct Event {
  std::string phase, category, name;
  int64_t pid = 0, tid = 0;
  double us = 0, length_us = 0;
  int64_t id = -1;
};

class TimelineTest : public testing::Test {
 protected:
  void Write(const std::vector<std::pair<const Trace*, TimelineRank>>& ranks) {
    const std::string path = folder_.At("merged.json");
    auto writer = TimelineWriter::Make(path, 1.5);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (const auto& [trace, rank] : ranks) (*writer)->Add(*trace, rank);
    ASSERT_TRUE((*writer)->Close().ok());
    simdjson::dom::parser parser;
    simdjson::dom::element file;
    ASSERT_FALSE(parser.load(path).get(file));
    EXPECT_EQ(double(file["stepscope.clock_residual_us"]), 1.5);
    for (const simdjson::dom::element row :
         simdjson::dom::array(file["traceEvents"])) {
      Read(row);
    }
  }

  void Read(simdjson::dom::element row) {
    Event event;
    std::string_view text;
    if (!row["ph"].get(text)) event.phase = text;
    if (!row["cat"].get(text)) event.category = text;
    if (!row["name"].get(text)) event.name = text;
    // Keys that are missing or have text in place of a number keep the default.
    const auto number = [&](const char* key, auto& value) {
      std::remove_reference_t<decltype(value)> found = value;
      if (!row[key].get(found)) value = found;
    };
    number("pid", event.pid);
    number("tid", event.tid);
    number("ts", event.us);
    number("dur", event.length_us);
    number("id", event.id);
    if (event.phase == "M" && event.name == "process_name")
      processes_[event.pid] = std::string_view(row["args"]["name"]);
    events_.push_back(event);
  }

  std::vector<Event> Of(const std::string& phase, const std::string& category) {
    std::vector<Event> found;
    for (const Event& event : events_) {
      if (event.phase == phase && event.category == category)
        found.push_back(event);
    }
    return found;
  }

  TempFolder folder_;
  std::vector<Event> events_;
  std::map<int64_t, std::string> processes_;
};

TEST_F(TimelineTest, RanksShareOneClockAndNoProcess) {
  const Trace a = Rank("1000..5000"), b = Rank("9000..12000");
  Write({{&a, {.name = "rank 0"}},
         {&b, {.name = "rank 1", .clock_offset_ns = 7000}}});
  const std::vector<Event> kernels = Of("X", "kernel");
  ASSERT_THAT(kernels, SizeIs(2));
  EXPECT_NE(kernels[0].pid, kernels[1].pid);
  EXPECT_EQ(processes_[kernels[0].pid], "rank 0: GPU 0");
  EXPECT_EQ(processes_[kernels[1].pid], "rank 1: GPU 0");
  EXPECT_NEAR(kernels[1].us - kernels[0].us, 1.0, 1e-6);  // 9 - 7 - 1
  EXPECT_NEAR(kernels[0].us + kernels[0].length_us,
              kernels[1].us + kernels[1].length_us, 1e-6);
  const std::vector<Event> calls = Of("X", "cuda_runtime");
  ASSERT_THAT(calls, SizeIs(2));
  EXPECT_NE(calls[0].pid, calls[1].pid);
  EXPECT_EQ(calls[0].tid, 41);
}

TEST_F(TimelineTest, ARankThatBeganBeforeMidnightKeepsItsPlace) {
  constexpr int64_t kDayNs = int64_t{24} * 3600 * 1'000'000'000;
  const auto at = [](int64_t ns) {
    return Rank(std::to_string(ns) + ".." + std::to_string(ns + 4000));
  };
  const Trace a = at(2 * kDayNs + 5000), b = at(2 * kDayNs - 3000);
  Write({{&a, {.name = "rank 0"}}, {&b, {.name = "rank 1"}}});
  const std::vector<Event> kernels = Of("X", "kernel");
  ASSERT_THAT(kernels, SizeIs(2));
  EXPECT_NEAR(kernels[0].us - kernels[1].us, 8.0, 1e-3);
  for (const Event& event : events_) EXPECT_GE(event.us, 0) << event.name;
}

TEST_F(TimelineTest, ArrowsKeepTheirIdsApartAndTouchTheirEvents) {
  const Trace a = Rank("1000..5000"), b = Rank("2000..5000");
  const TimelineArrow start = {.id = 1,
                               .is_start = true,
                               .kernel = 0,
                               .begin_ns = 1000,
                               .end_ns = 5000,
                               .at_ns = 1000};
  const TimelineArrow end = {.id = 1,
                             .is_start = false,
                             .kernel = 0,
                             .begin_ns = 2000,
                             .end_ns = 5000,
                             .at_ns = 2001};
  Write({{&a, {.name = "rank 0", .arrows = {&start, 1}}},
         {&b, {.name = "rank 1", .arrows = {&end, 1}}}});
  const std::vector<Event> from = Of("s", "collective");
  const std::vector<Event> to = Of("f", "collective");
  const std::vector<Event> kernels = Of("X", "kernel");
  ASSERT_THAT(from, SizeIs(1));
  ASSERT_THAT(to, SizeIs(1));
  EXPECT_EQ(from[0].id, to[0].id);
  EXPECT_EQ(from[0].pid, kernels[0].pid);
  EXPECT_EQ(to[0].pid, kernels[1].pid);
  EXPECT_EQ(to[0].tid, kernels[1].tid);
  EXPECT_NEAR(from[0].us, kernels[0].us, 1e-6);
  EXPECT_NEAR(to[0].us, kernels[1].us + 0.001, 1e-6);
  std::set<int64_t> launches;
  for (const Event& event : Of("s", "ac2g")) launches.insert(event.id);
  EXPECT_THAT(launches, SizeIs(2));
}

TEST_F(TimelineTest, CollectivesOfTheHostAreFoundByTheirTimes) {
  const Trace trace = TraceFromText(R"(
    range 1000..4000 thread=0 gloo:all_reduce
    op 1000..4000 thread=0 aten::add
    op 1000..2000 thread=0 aten::mul
  )");
  const TimelineArrow arrow = {.id = 3,
                               .is_start = true,
                               .begin_ns = 1000,
                               .end_ns = 4000,
                               .at_ns = 1000};
  Write({{&trace, {.name = "rank 0", .arrows = {&arrow, 1}}}});
  EXPECT_THAT(Of("s", "collective"), SizeIs(1));
}

TEST_F(TimelineTest, HostileRowsStayValidJson) {
  const Trace a = RandomTrace({.seed = 3, .rank = 0});
  const Trace b = RandomTrace({.seed = 4, .rank = 1});
  Write({{&a, {.name = "rank 0"}}, {&b, {.name = "rank \"1\""}}});
  std::set<std::string> ranks;
  for (const auto& [pid, name] : processes_)
    ranks.insert(name.substr(0, name.find(':')));
  EXPECT_THAT(ranks, ElementsAre("rank \"1\"", "rank 0"));
}

TEST_F(TimelineTest, NothingIsLeftWithoutClose) {
  const std::string path = folder_.At("merged.json.gz");
  {
    auto writer = TimelineWriter::Make(path, -1);
    ASSERT_TRUE(writer.ok());
    (*writer)->Add(Rank("1000..5000"), {.name = "rank 0"});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_FALSE(TimelineWriter::Make(folder_.At("no/such/folder"), 0).ok());
}

}  // namespace
}  // namespace stepscope::timeline_test
