// Tests the summary that `stepscope info` prints: small traces by hand, and
// recorded ones compared with a script that shares no code with stepscope.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <stepscope/read.h>
#include <stepscope/summary.h>

#include <string>
#include <vector>

#include "support/real_trace_path.h"
#include "support/trace_text.h"

namespace stepscope::summary_test {
namespace {

namespace dom = simdjson::dom;

std::string DataFolder() { return STEPSCOPE_TEST_DATA "/traces"; }

dom::object AllFigures() {
  static dom::parser* parser = new dom::parser;
  static dom::object figures =
      dom::object(parser->load(DataFolder() + "/summary.json"));
  return figures;
}

// Checks that `got` has every number of `wanted` under the same keys.
void ExpectFigures(const std::string& where, dom::element wanted,
                   dom::element got) {
  dom::object members;
  double number = 0;
  if (!wanted.get(members)) {
    for (dom::key_value_pair member : members) {
      const std::string place = where + "." + std::string(member.key);
      dom::element inner;
      ASSERT_FALSE(got[member.key].get(inner)) << place << " is missing";
      ExpectFigures(place, member.value, inner);
    }
  } else if (!wanted.get(number)) {
    double figure = 0;
    ASSERT_FALSE(got.get(figure)) << where;
    // The expected numbers are rounded to nanoseconds.
    EXPECT_NEAR(figure, number, 0.00051) << where;
  } else {
    EXPECT_EQ(simdjson::minify(wanted), simdjson::minify(got)) << where;
  }
}

class SummaryOfRealTraces : public testing::TestWithParam<std::string> {};

TEST_P(SummaryOfRealTraces, HasTheFiguresOfAnIndependentReader) {
  const std::string path = RealTracePath(GetParam());
  if (path.empty()) {
    GTEST_SKIP() << GetParam() << " is not committed and not in ../shared/"
                 << "traces; STEPSCOPE_TRACES can name its folder";
  }
  const absl::StatusOr<Trace> trace = ReadTrace(path);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  const std::string json = ToJson(Summarize(*trace));
  dom::parser parser;
  const dom::element summary = parser.parse(json);
  ExpectFigures("", AllFigures()[GetParam()], summary);
  // The summary contains no other devices.
  EXPECT_EQ(dom::object(summary["gpu"]).size(),
            dom::object(AllFigures()[GetParam()]["gpu"]).size());
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (dom::key_value_pair entry : AllFigures()) names.emplace_back(entry.key);
  return names;
}

std::string TestName(const testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param.substr(0, parameter.param.find('.'));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, SummaryOfRealTraces, testing::ValuesIn(Names()),
                         TestName);

const char* const kSmall = R"(
  run rank=1 world_size=2
  step 0..1000000 thread=0 number=7
  step 1000000..3000000 thread=0 number=8
  range 500000..1500000 thread=0 kind=loader enumerate(DataLoader)#X.__next__
  range 2900000..3100000 thread=0 kind=loader enumerate(DataLoader)#X.__next__
  kernel 0..100 device=0 stream=7 correlation=1 ncclDevKernel_AllReduce
  kernel 50..200 device=0 stream=8 correlation=2 gemm
  kernel 150..250 device=0 stream=9 correlation=3 gemm
  copy 240..300 device=0 stream=7 source=pageable destination=device bytes=64
  copy 400..500 device=1 stream=7 source=device destination=pinned bytes=9
  memset 500..510 device=1 stream=7
)";

TEST(SummarizeTest, CountsTimeThatOverlapsOnce) {
  const TraceSummary summary = Summarize(TraceFromText(kSmall));
  ASSERT_EQ(summary.devices.size(), 2u);
  const DeviceSummary& first = summary.devices.at(0);
  EXPECT_EQ(first.kernels, 3);
  EXPECT_EQ(first.streams, 3);
  EXPECT_EQ(first.kernel_sum_ns, 350);
  EXPECT_EQ(first.kernel_busy_ns, 250);
  EXPECT_EQ(first.busy_ns, 300);
  EXPECT_EQ(first.span_ns, 300);
  EXPECT_EQ(first.collectives, 1);
  EXPECT_EQ(first.collective_busy_ns, 100);
  EXPECT_EQ(first.exposed_ns, 50);
  const DeviceSummary& second = summary.devices.at(1);
  EXPECT_EQ(second.kernels, 0);
  EXPECT_EQ(second.memsets, 1);
  EXPECT_EQ(second.busy_ns, 110);
  EXPECT_EQ(summary.work_without_call, 6);
}

TEST(SummarizeTest, TellsUploadsByTheMemoryTheyComeFrom) {
  const TraceSummary summary = Summarize(TraceFromText(kSmall));
  EXPECT_EQ(summary.uploads_pageable.count, 1);
  EXPECT_EQ(summary.uploads_pageable.bytes, 64);
  EXPECT_EQ(summary.uploads_pinned.count, 0);
  EXPECT_EQ(summary.copies.at("device -> pinned").bytes, 9);
}

TEST(SummarizeTest, CutsWaitsForBatchesAtTheSteps) {
  const TraceSummary summary = Summarize(TraceFromText(kSmall));
  EXPECT_EQ(summary.loader.waits, 2);
  EXPECT_EQ(summary.loader.ns, 1'200'000);
  EXPECT_EQ(summary.loader.in_steps_ns, 1'100'000);
  EXPECT_EQ(summary.steps.numbers, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(summary.steps.min_ns, 1'000'000);
  EXPECT_EQ(summary.steps.max_ns, 2'000'000);
}

TEST(SummarizeTest, SaysNothingAboutMissingSteps) {
  const std::string json = ToJson(Summarize(TraceFromText("op 0..9 thread=0")));
  EXPECT_NE(json.find("\"mean_us\": null"), std::string::npos) << json;
  EXPECT_NE(json.find("\"gpu\": {}"), std::string::npos) << json;
}

TEST(SummarizeTest, TextNamesRankStepsAndLosses) {
  const std::string text = ToText(Summarize(
      TraceFromText(std::string(kSmall) + "loss count=3 detail=gone x\n")));
  EXPECT_NE(text.find("1 of 2"), std::string::npos) << text;
  EXPECT_NE(text.find("2 x 1.500 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("x: gone"), std::string::npos) << text;
}

TEST(SummaryTest, TellsEachStepsPeakOfMemoryAndItsOperator) {
  const TraceSummary summary = Summarize(TraceFromText(R"(
    step 0..100 thread=0 number=3
    step 100..200 thread=0 number=4
    op 10..40 thread=0 aten::conv2d
    allocation 15 thread=0 address=1 bytes=700000 total_allocated_bytes=900000 total_reserved_bytes=2000000 device_type=1 device=0
    allocation 150 thread=0 address=1 bytes=-700000 total_allocated_bytes=200000 total_reserved_bytes=2000000 device_type=1 device=0
  )"));
  ASSERT_EQ(summary.memory.size(), 2u);
  EXPECT_EQ(summary.memory[0].device, "gpu 0");
  EXPECT_EQ(summary.memory[0].step, 3);
  EXPECT_EQ(summary.memory[0].peak_bytes, 900000);
  EXPECT_EQ(summary.memory[0].op, "aten::conv2d");
  EXPECT_EQ(summary.memory[1].step, 4);
  EXPECT_EQ(summary.memory[1].op, "");
  EXPECT_NE(ToText(summary).find("gpu 0: at most 900 kB in use of 2.0 MB "
                                 "reserved, in step 3, at aten::conv2d"),
            std::string::npos)
      << ToText(summary);
  TraceSummary later = summary;
  later.memory.erase(later.memory.begin());
  EXPECT_NE(ToText(later).find("reserved, held since before step 4"),
            std::string::npos)
      << ToText(later);
  EXPECT_NE(ToJson(summary).find("\"memory_peaks\""), std::string::npos);
}

// LibTorch's CPU totals start at 0 when the recording starts, so they lack a
// model of 27 MB.
TEST(SummaryTest, MemoryOfACpuIsOnlyWhatWasAllocatedWhileRecording) {
  const TraceSummary summary = Summarize(TraceFromText(R"(
    step 0..100 thread=0 number=3
    allocation 15 thread=0 address=1 bytes=5000000 total_allocated_bytes=5000000 device_type=0 device=-1
  )"));
  ASSERT_EQ(summary.memory.size(), 1u);
  EXPECT_TRUE(summary.memory[0].is_counted);
  EXPECT_NE(ToText(summary).find(
                "cpu: at most 5.0 MB allocated during the recording"),
            std::string::npos)
      << ToText(summary);
  EXPECT_NE(ToText(summary).find("parameters"), std::string::npos);
}

TEST(SummaryTest, SaysNothingAboutUnrecordedMemory) {
  const TraceSummary summary = Summarize(TraceFromText("step 0..9 thread=0"));
  EXPECT_TRUE(summary.memory.empty());
  EXPECT_EQ(ToText(summary).find("memory"), std::string::npos);
}

}  // namespace
}  // namespace stepscope::summary_test
