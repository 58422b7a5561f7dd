// Compares traces that other people recorded with numbers of a script that
// shares no code with stepscope (tests/data/traces/README.md).
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/read.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/real_trace_path.h"

namespace stepscope::real_traces_test {
namespace {

namespace dom = simdjson::dom;

std::string DataFolder() {
  return std::string(STEPSCOPE_TEST_DATA) + "/traces";
}

dom::object AllFigures() {
  static dom::parser* parser = new dom::parser;
  static dom::object figures =
      dom::object(parser->load(DataFolder() + "/expected.json"));
  return figures;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (dom::key_value_pair entry : AllFigures()) names.emplace_back(entry.key);
  return names;
}

// Sums up the nanoseconds that each device's rows cover.
class Busy {
 public:
  template <typename Row>
  void Add(std::span<const Row> rows) {
    for (const Row& row : rows)
      spans_[row.device].push_back({row.begin_ns, row.end_ns});
  }
  double Microseconds() {
    int64_t sum = 0;
    for (auto& [device, spans] : spans_) {
      std::sort(spans.begin(), spans.end());
      int64_t covered_to = INT64_MIN;
      for (const auto& [begin, end] : spans) {
        sum += std::max<int64_t>(0, end - std::max(begin, covered_to));
        covered_to = std::max(covered_to, end);
      }
    }
    return static_cast<double>(sum) / 1000;
  }

 private:
  std::map<int32_t, std::vector<std::pair<int64_t, int64_t>>> spans_;
};

class RealTracesTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = RealTracePath(GetParam());
    if (path.empty()) {
      GTEST_SKIP() << GetParam() << " is not committed and not in ../shared/"
                   << "traces; STEPSCOPE_TRACES can name its folder";
    }
    absl::StatusOr<Trace> trace = ReadTrace(path);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    trace_ = *std::move(trace);
    figures_ = dom::object(AllFigures()[GetParam()]);
  }

  void LosesNothing();
  void HasItsSteps();
  void HasItsDeviceWork();
  void KnowsWhichMemoryWasCopied();
  void FindsTheLaunchOfEachActivity();
  void HasItsLoaderMemoryAndPythonEvents();
  void InventsNoRankAndNoDevice();
  void CountsTimesFromItsBase();
  void NestsEveryOpInsideItsParent();

  int64_t Integer(const char* key) { return int64_t(figures_[key]); }
  double Real(const char* key) { return double(figures_[key]); }
  int64_t IntegerAt(const char* key, size_t at) {
    return static_cast<int64_t>(double(figures_[key].at(at)));
  }

  Trace trace_;
  dom::object figures_;
};

void RealTracesTest::LosesNothing() {
  for (const Loss& loss : trace_.losses())
    ADD_FAILURE() << loss.name << ": " << loss.detail;
}

void RealTracesTest::HasItsSteps() {
  ASSERT_EQ(trace_.steps().size(), Integer("steps"));
  EXPECT_EQ(trace_.watched(Kind::kStep), Integer("steps") > 0);
  if (trace_.steps().empty()) return;
  double sum_us = 0;
  for (const Step& step : trace_.steps())
    sum_us += static_cast<double>(step.end_ns - step.begin_ns) / 1000;
  EXPECT_NEAR(sum_us / static_cast<double>(trace_.steps().size()),
              Real("step_mean_us"), 0.001);
}

void RealTracesTest::HasItsDeviceWork() {
  EXPECT_EQ(trace_.kernels().size(), Integer("kernels"));
  EXPECT_EQ(trace_.copies().size(), Integer("copies"));
  EXPECT_EQ(trace_.memsets().size(), Integer("memsets"));
  EXPECT_EQ(trace_.runtime_calls().size(), Integer("calls"));
  Busy kernels;
  kernels.Add(trace_.kernels());
  EXPECT_NEAR(kernels.Microseconds(), Real("kernel_busy_us"), 0.001);
  Busy all;
  all.Add(trace_.kernels());
  all.Add(trace_.copies());
  all.Add(trace_.memsets());
  EXPECT_NEAR(all.Microseconds(), Real("gpu_busy_us"), 0.001);
}

void RealTracesTest::KnowsWhichMemoryWasCopied() {
  std::map<MemoryKind, std::pair<int64_t, int64_t>> uploads;
  for (const Copy& copy : trace_.copies()) {
    if (copy.destination != MemoryKind::kDevice ||
        copy.source == MemoryKind::kDevice) {
      continue;
    }
    ++uploads[copy.source].first;
    uploads[copy.source].second += std::max<int64_t>(copy.bytes, 0);
  }
  const auto expect = [&](MemoryKind kind, const char* key) {
    EXPECT_EQ(uploads[kind].first, IntegerAt(key, 0)) << key;
    EXPECT_EQ(uploads[kind].second, IntegerAt(key, 1)) << key;
  };
  expect(MemoryKind::kPageable, "htod_pageable");
  expect(MemoryKind::kPinned, "htod_pinned");
  expect(MemoryKind::kHost, "htod_unknown");
}

void RealTracesTest::FindsTheLaunchOfEachActivity() {
  int64_t unlinked = 0;
  const auto count = [&](const auto& rows) {
    for (const auto& row : rows) unlinked += row.call == kNone;
  };
  count(trace_.kernels());
  count(trace_.copies());
  count(trace_.memsets());
  EXPECT_EQ(unlinked, Integer("gpu_events_without_call"));
}

void RealTracesTest::HasItsLoaderMemoryAndPythonEvents() {
  int64_t waits = 0;
  double waited_us = 0;
  for (const Range& range : trace_.ranges()) {
    if (range.kind != RangeKind::kLoader) continue;
    ++waits;
    waited_us += static_cast<double>(range.end_ns - range.begin_ns) / 1000;
  }
  EXPECT_EQ(waits, IntegerAt("loader", 0));
  EXPECT_NEAR(waited_us, double(figures_["loader"].at(1)), 0.001);
  EXPECT_EQ(trace_.watched(Kind::kLoader), waits > 0);
  EXPECT_EQ(trace_.allocations().size(), Integer("memory_events"));
  EXPECT_EQ(trace_.python_frames().size(), Integer("python_frames"));
}

void RealTracesTest::InventsNoRankAndNoDevice() {
  EXPECT_EQ(trace_.run().rank, Integer("rank"));
  EXPECT_EQ(trace_.run().world_size, Integer("world_size"));
  EXPECT_EQ(trace_.run().devices.size(), Integer("devices_listed"));
}

void RealTracesTest::CountsTimesFromItsBase() {
  if (trace_.ops().empty()) return;
  int64_t base = 0;
  // 2021 to 2027. Without a base, the small times of vLLM remain small.
  constexpr int64_t kYear = int64_t{31'556'952} * 1'000'000'000;
  const bool has_base = !figures_["base_ns"].get(base);
  const int64_t begin = trace_.ops().front().begin_ns;
  if (has_base || begin > kYear) {
    EXPECT_GT(begin, 51 * kYear);
    EXPECT_LT(begin, 57 * kYear);
  }
}

void RealTracesTest::NestsEveryOpInsideItsParent() {
  for (const Op& op : trace_.ops()) {
    if (op.parent == kNone) continue;
    const Op& parent = trace_.ops()[op.parent];
    ASSERT_EQ(parent.thread, op.thread);
    ASSERT_LE(parent.begin_ns, op.begin_ns);
    // Two times were rounded to whole microseconds.
    ASSERT_LE(op.end_ns, parent.end_ns + 2000);
  }
}

TEST_P(RealTracesTest, HasTheFiguresOfAnIndependentReader) {
  LosesNothing();
  HasItsSteps();
  HasItsDeviceWork();
  KnowsWhichMemoryWasCopied();
  FindsTheLaunchOfEachActivity();
  HasItsLoaderMemoryAndPythonEvents();
  InventsNoRankAndNoDevice();
  CountsTimesFromItsBase();
  NestsEveryOpInsideItsParent();
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(0, info.param.find('.'));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, RealTracesTest, testing::ValuesIn(Names()),
                         TestName);

}  // namespace
}  // namespace stepscope::real_traces_test
