#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/memory_peaks.h>
#include <stepscope/read.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/real_trace_path.h"
#include "support/trace_text.h"

namespace stepscope::memory_peaks_test {
namespace {

using testing::SizeIs;

std::string_view OpName(const Trace& trace, const MemoryPeak& peak) {
  return peak.op == kNone ? "" : trace.name(trace.ops()[peak.op].name);
}

TEST(MemoryPeaksTest, NamesTheMomentAndTheOperatorOfEachStep) {
  const Trace trace = TraceFromText(R"(
    step 0..100 thread=0 number=3
    step 100..200 thread=0 number=4
    op 10..40 thread=0 aten::conv2d
    op 12..20 thread=0 aten::empty
    op 120..130 thread=0 aten::relu
    allocation 15 thread=0 address=1 bytes=700 total_allocated_bytes=900 total_reserved_bytes=2000 device_type=1 device=0
    allocation 50 thread=0 address=1 bytes=-700 total_allocated_bytes=200 total_reserved_bytes=2000 device_type=1 device=0
    allocation 125 thread=0 address=2 bytes=300 total_allocated_bytes=500 total_reserved_bytes=2000 device_type=1 device=0
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(2));
  EXPECT_EQ(peaks[0].step, 0u);
  EXPECT_EQ(peaks[0].device_type, 1);
  EXPECT_EQ(peaks[0].device, 0);
  EXPECT_EQ(peaks[0].bytes, 900);
  EXPECT_EQ(peaks[0].reserved_bytes, 2000);
  EXPECT_EQ(peaks[0].time_ns, 15);
  EXPECT_EQ(peaks[0].allocation, 0u);
  EXPECT_EQ(OpName(trace, peaks[0]), "aten::conv2d");
  EXPECT_FALSE(peaks[0].is_counted);
  EXPECT_EQ(peaks[1].bytes, 500);
  EXPECT_EQ(OpName(trace, peaks[1]), "aten::relu");
}

TEST(MemoryPeaksTest, AStepThatOnlyGivesBackPeaksAtItsBeginning) {
  const Trace trace = TraceFromText(R"(
    step 0..100 thread=0 number=0
    step 100..200 thread=0 number=1
    allocation 15 thread=0 address=1 bytes=700 total_allocated_bytes=700 device_type=1 device=0
    allocation 150 thread=0 address=1 bytes=-700 total_allocated_bytes=0 device_type=1 device=0
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(2));
  EXPECT_EQ(peaks[1].bytes, 700);
  EXPECT_EQ(peaks[1].time_ns, 100);
  EXPECT_EQ(peaks[1].allocation, kNone);
  EXPECT_EQ(peaks[1].op, kNone);
}

TEST(MemoryPeaksTest, AFirstEventThatGivesBackTellsWhatWasHeld) {
  const Trace trace = TraceFromText(R"(
    step 0..100 thread=0 number=0
    allocation 15 thread=0 address=1 bytes=-700 total_allocated_bytes=100 device_type=0 device=-1
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(1));
  EXPECT_EQ(peaks[0].bytes, 800);
  EXPECT_EQ(peaks[0].allocation, kNone);
}

TEST(MemoryPeaksTest, DevicesAreCountedApart) {
  const Trace trace = TraceFromText(R"(
    step 0..100 thread=0 number=0
    allocation 10 thread=0 address=1 bytes=5 total_allocated_bytes=5 device_type=1 device=1
    allocation 20 thread=0 address=1 bytes=7 total_allocated_bytes=7 device_type=1 device=0
    allocation 30 thread=0 address=1 bytes=9 total_allocated_bytes=9 device_type=0 device=-1
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(3));
  EXPECT_EQ(peaks[0].bytes, 9);
  EXPECT_EQ(peaks[1].bytes, 7);
  EXPECT_EQ(peaks[2].bytes, 5);
}

TEST(MemoryPeaksTest, WithoutTotalsSizesAreAddedUpFromTheLeastPossible) {
  const Trace trace = TraceFromText(R"(
    step 0..100 thread=0 number=0
    allocation 10 thread=0 address=1 bytes=40 device_type=1 device=0
    allocation 20 thread=0 address=9 bytes=-100 device_type=1 device=0
    allocation 30 thread=0 address=2 bytes=70 device_type=1 device=0
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(1));
  EXPECT_TRUE(peaks[0].is_counted);
  EXPECT_EQ(peaks[0].bytes, 100);  // 60 before, then 100, 0, 70
  EXPECT_EQ(peaks[0].time_ns, 10);
}

// Found by fuzzing: in a damaged file, the sum of the sizes could not be
// negated.
TEST(MemoryPeaksTest, SizesThatNoMachineHasDoNotOverflow) {
  const Trace trace = TraceFromText(R"(
    step 0..100 thread=0 number=3
    allocation 10 thread=0 address=1 bytes=-9223372036854775807
    allocation 20 thread=0 address=2 bytes=-9223372036854775807
    allocation 30 thread=0 address=3 bytes=9223372036854775807
    allocation 40 thread=0 address=4 bytes=9223372036854775807
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(1));
  EXPECT_EQ(peaks[0].bytes, int64_t{1} << 45);
}

TEST(MemoryPeaksTest, WithoutStepsTheWholeTraceIsOne) {
  const Trace trace = TraceFromText(R"(
    allocation 10 thread=0 address=1 bytes=40 total_allocated_bytes=40 device_type=1 device=0
  )");
  const auto peaks = MemoryPeaks(trace);
  ASSERT_THAT(peaks, SizeIs(1));
  EXPECT_EQ(peaks[0].step, kNone);
  EXPECT_EQ(peaks[0].bytes, 40);
}

TEST(MemoryPeaksTest, WithoutEventsThereAreNone) {
  EXPECT_TRUE(
      MemoryPeaks(TraceFromText("step 0..9 thread=0 number=0")).empty());
  EXPECT_TRUE(MemoryPeaks(Trace()).empty());
}

// Recounts the peaks: other code reads the file's JSON again.
struct Event {
  double us = 0;
  int64_t bytes = 0;
  int64_t total = -1;
  int64_t device_type = 0;
  int64_t device = 0;
};
struct Recount {
  std::vector<std::pair<double, double>> steps;
  std::vector<Event> events;
};

std::string Unpacked(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string bytes;
  std::vector<char> block(1 << 20);
  int got = 0;
  while ((got = gzread(file, block.data(), 1 << 20)) > 0)
    bytes.append(block.data(), static_cast<size_t>(got));
  gzclose(file);
  return bytes;
}

double NumberOf(simdjson::dom::element value) {
  double number = 0;
  return value.get(number) == simdjson::SUCCESS ? number : -1;
}

int64_t IntegerOf(simdjson::dom::element args, const char* key) {
  int64_t number = -1;
  return args[key].get(number) == simdjson::SUCCESS ? number : -1;
}

Recount ReadRaw(const std::string& path) {
  Recount recount;
  simdjson::dom::parser parser;
  const simdjson::padded_string text(Unpacked(path));
  simdjson::dom::element document;
  if (parser.parse(text).get(document) != simdjson::SUCCESS) return recount;
  for (simdjson::dom::element event : document["traceEvents"].get_array()) {
    std::string_view name;
    if (event["name"].get(name) != simdjson::SUCCESS) continue;
    simdjson::dom::element ts;
    if (event["ts"].get(ts) != simdjson::SUCCESS) continue;
    simdjson::dom::element duration;
    if (name.starts_with("ProfilerStep") &&
        event["dur"].get(duration) == simdjson::SUCCESS) {
      std::string_view category;
      if (event["cat"].get(category) != simdjson::SUCCESS) category = "";
      if (category.starts_with("gpu")) continue;
      recount.steps.emplace_back(NumberOf(ts),
                                 NumberOf(ts) + NumberOf(duration));
    }
    if (name != "[memory]") continue;
    const simdjson::dom::element args = event["args"];
    recount.events.push_back({NumberOf(ts), IntegerOf(args, "Bytes"),
                              IntegerOf(args, "Total Allocated"),
                              IntegerOf(args, "Device Type"),
                              IntegerOf(args, "Device Id")});
  }
  std::sort(recount.steps.begin(), recount.steps.end());
  std::stable_sort(recount.events.begin(), recount.events.end(),
                   [](const Event& a, const Event& b) { return a.us < b.us; });
  if (recount.steps.empty()) recount.steps.emplace_back(-1e300, 1e300);
  return recount;
}

// Computes by brute force the level at every moment, and then each step's
// maximum.
std::map<std::array<int64_t, 3>, int64_t> PeaksOf(const Recount& recount) {
  std::map<std::array<int64_t, 3>, int64_t> peaks;
  std::map<std::array<int64_t, 2>, std::vector<Event>> by_device;
  for (const Event& event : recount.events)
    by_device[{event.device_type, event.device}].push_back(event);
  for (auto& [device, events] : by_device) {
    int64_t sum = 0;
    int64_t least = 0;
    for (const Event& event : events) {
      sum += event.bytes;
      least = std::min(least, sum);
    }
    std::vector<int64_t> levels;
    for (const Event& event : events) {
      const int64_t before = levels.empty() ? -least : levels.back();
      levels.push_back(event.total >= 0 ? event.total : before + event.bytes);
    }
    for (size_t s = 0; s < recount.steps.size(); ++s) {
      for (size_t i = 0; i < events.size(); ++i) {
        if (events[i].us >= recount.steps[s].second) continue;
        // A level counts for a step if it started in the step or lasted into
        // it.
        const bool lasts = i + 1 == events.size() ||
                           events[i + 1].us >= recount.steps[s].first;
        if (events[i].us < recount.steps[s].first && !lasts) continue;
        int64_t& peak =
            peaks.try_emplace({int64_t(s), device[0], device[1]}, INT64_MIN)
                .first->second;
        peak = std::max(peak, levels[i]);
        const bool first_gives_back = i == 0 && events[i].bytes < 0 &&
                                      events[i].us >= recount.steps[s].first;
        if (first_gives_back)
          peak = std::max(peak, levels[i] - events[i].bytes);
      }
    }
  }
  return peaks;
}

class GivenTraceTest : public testing::TestWithParam<const char*> {};

TEST_P(GivenTraceTest, PeaksEqualAPlainRecountOfTheFilesEvents) {
  const std::string path = RealTracePath(GetParam() + std::string(".json.gz"));
  if (path.empty()) {
    GTEST_SKIP() << "the trace is not here; STEPSCOPE_TRACES names its folder";
  }
  const absl::StatusOr<Trace> trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok());
  const auto expected = PeaksOf(ReadRaw(path));
  ASSERT_FALSE(expected.empty());
  std::map<std::array<int64_t, 3>, int64_t> found;
  size_t with_op = 0;
  for (const MemoryPeak& peak : MemoryPeaks(*trace)) {
    found[{peak.step == kNone ? 0 : peak.step, peak.device_type, peak.device}] =
        peak.bytes;
    with_op += peak.op != kNone;
  }
  EXPECT_EQ(found, expected);
  EXPECT_GT(with_op, 0u);
}

INSTANTIATE_TEST_SUITE_P(WithMemoryEvents, GivenTraceTest,
                         testing::Values("resnet50_v100_workers0.pt.trace",
                                         "resnet50_v100_workers4.pt.trace",
                                         "owlv2_h100", "part_a100_bs2",
                                         "part_a100_bs128"),
                         [](const auto& test) {
                           std::string name = test.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace stepscope::memory_peaks_test
