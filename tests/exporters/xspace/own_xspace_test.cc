// Reads back our own XSpaces.
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/export.h>
#include <stepscope/read.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support/random_trace.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace stepscope::own_xspace_test {
namespace {

class OwnXSpaceTest : public testing::Test {
 protected:
  Trace Again(const Trace& trace, const std::string& name = "h.xplane.pb") {
    const std::string path = folder_.At(name);
    const absl::Status written = WriteTrace(trace, {}, Format::kXSpace, path);
    EXPECT_TRUE(written.ok()) << written.message();
    absl::StatusOr<Trace> read = ReadTrace(path);
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() ? *std::move(read) : Trace();
  }

  // XProf drops kernels of length 0, so the writer gives them 1 ns.
  static std::multiset<std::string> Texts(const Trace& trace,
                                          const auto& rows) {
    std::multiset<std::string> texts;
    for (const auto& row : rows) {
      texts.insert(std::string(trace.name(row.name)) + " " +
                   std::to_string(row.begin_ns) + " " +
                   std::to_string(std::max(row.end_ns, row.begin_ns + 1)));
    }
    return texts;
  }

  // Returns the first row that only one of both has; else an empty text.
  static std::string Difference(const std::multiset<std::string>& a,
                                const std::multiset<std::string>& b) {
    std::vector<std::string> only;
    std::ranges::set_symmetric_difference(a, b, std::back_inserter(only));
    return only.empty() ? "" : only[0];
  }

  TempFolder folder_;
};

// Sums of sizes lack what was allocated before the recording.
TEST_F(OwnXSpaceTest, DoesNotTakeSumsForTheAllocatorsTotals) {
  const Trace again = Again(TraceFromText(R"(
    op 0..100 thread=0 aten::empty
    allocation 10 thread=0 address=64 bytes=100 device=0 device_type=1
    allocation 20 thread=0 address=65 bytes=50 device=0 device_type=1 total_allocated_bytes=900
  )"));
  ASSERT_EQ(again.allocations().size(), 2u);
  EXPECT_EQ(again.allocations()[0].total_allocated_bytes, -1);
  EXPECT_EQ(again.allocations()[1].total_allocated_bytes, 900);
}

TEST_F(OwnXSpaceTest, GivesBackTheRowsItHolds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Trace trace = RandomTrace(
        {.seed = seed, .hostile_names = false, .crossing_ranges = false});
    const Trace again = Again(trace);
    SCOPED_TRACE(seed);
    EXPECT_EQ(Difference(Texts(again, again.kernels()),
                         Texts(trace, trace.kernels())),
              "");
    EXPECT_EQ(Difference(Texts(again, again.ops()), Texts(trace, trace.ops())),
              "");
    EXPECT_EQ(Difference(Texts(again, again.runtime_calls()),
                         Texts(trace, trace.runtime_calls())),
              "");
    EXPECT_EQ(Difference(Texts(again, again.python_frames()),
                         Texts(trace, trace.python_frames())),
              "");
    ASSERT_EQ(again.steps().size(), trace.steps().size());
    for (size_t i = 0; i < trace.steps().size(); ++i) {
      EXPECT_EQ(again.steps()[i].number, trace.steps()[i].number);
      EXPECT_EQ(again.steps()[i].begin_ns, trace.steps()[i].begin_ns);
    }
    ASSERT_EQ(again.copies().size(), trace.copies().size());
    for (size_t i = 0; i < trace.copies().size(); ++i) {
      EXPECT_EQ(again.copies()[i].source, trace.copies()[i].source);
      EXPECT_EQ(again.copies()[i].destination, trace.copies()[i].destination);
      EXPECT_EQ(again.copies()[i].bytes,
                std::max<int64_t>(trace.copies()[i].bytes, 0));
      EXPECT_EQ(again.copies()[i].is_async, trace.copies()[i].is_async);
    }
    ASSERT_EQ(again.memsets().size(), trace.memsets().size());
    for (size_t i = 0; i < trace.memsets().size(); ++i) {
      EXPECT_EQ(again.memsets()[i].correlation, trace.memsets()[i].correlation);
      EXPECT_EQ(again.memsets()[i].call == kNone,
                trace.memsets()[i].call == kNone);
    }
    ASSERT_EQ(again.allocations().size(), trace.allocations().size());
  }
}

TEST_F(OwnXSpaceTest, KnowsTheRunThatItWasWrittenFrom) {
  const Trace trace = RandomTrace({.seed = 12, .rank = 3});
  const Trace again = Again(trace);
  EXPECT_EQ(again.run().rank, 3);
  EXPECT_EQ(again.run().world_size, trace.run().world_size);
  EXPECT_EQ(again.run().producer, trace.run().producer);
  EXPECT_EQ(again.run().training_thread, trace.run().training_thread);
  EXPECT_EQ(again.run().devices.size(), trace.run().devices.size());
  EXPECT_EQ(again.threads().size(), trace.threads().size());
  EXPECT_EQ(again.settings().size(), trace.settings().size());
  EXPECT_EQ(again.host_usage().size(), trace.host_usage().size());
  EXPECT_EQ(again.loaders().size(), trace.loaders().size());
  EXPECT_EQ(again.streams().size(), trace.streams().size());
  EXPECT_EQ(again.device_samples().size(), trace.device_samples().size());
  // Kinds of rows that the format lacks were not watched, and a note says so.
  EXPECT_FALSE(again.watched(Kind::kOpShapes));
  EXPECT_TRUE(std::ranges::any_of(again.losses(), [](const Loss& loss) {
    return loss.name == "format-limits" && loss.severity == Severity::kNote;
  }));
}

TEST_F(OwnXSpaceTest, OpsKeepTheCodeThatWasGenerated) {
  const Trace trace = TraceFromText(R"(
    op 0..100 thread=0 code=("/tmp/ab/cab.py","XBLOCK=2") triton_poi_fused_add_relu_0
    op 200..300 thread=0 code=("","XBLOCK=4") triton_poi_fused_mul_1
    op 400..500 thread=0 aten::mm
  )");
  const Trace again = Again(trace);
  ASSERT_EQ(again.ops().size(), 3u);
  const auto part = [&](size_t op, size_t frame) {
    return again.name(again.stacks()[again.ops()[op].code].frames[frame]);
  };
  ASSERT_NE(again.ops()[0].code, kNone);
  EXPECT_EQ(part(0, 0), "/tmp/ab/cab.py");
  EXPECT_EQ(part(0, 1), "XBLOCK=2");
  ASSERT_NE(again.ops()[1].code, kNone);
  EXPECT_EQ(part(1, 0), "");
  EXPECT_EQ(part(1, 1), "XBLOCK=4");
  EXPECT_EQ(again.ops()[2].code, kNone);
}

TEST_F(OwnXSpaceTest, WhatIsNotKnownOfAKernelStaysUnknown) {
  const Trace again = Again(TraceFromText(R"(
    kernel 0..100 registers_per_thread=0 shared_memory_bytes=0 none
    kernel 200..300 unknown
  )"));
  ASSERT_EQ(again.kernels().size(), 2u);
  EXPECT_EQ(again.kernels()[0].registers_per_thread, 0);
  EXPECT_EQ(again.kernels()[0].shared_memory_bytes, 0);
  EXPECT_EQ(again.kernels()[1].registers_per_thread, -1);
  EXPECT_EQ(again.kernels()[1].shared_memory_bytes, -1);
}

TEST_F(OwnXSpaceTest, KernelsKeepLaunchShapeStreamAndCall) {
  const Trace trace = RandomTrace({.seed = 8});
  const Trace again = Again(trace);
  ASSERT_EQ(again.kernels().size(), trace.kernels().size());
  for (size_t i = 0; i < trace.kernels().size(); ++i) {
    const Kernel& was = trace.kernels()[i];
    const Kernel& is = again.kernels()[i];
    EXPECT_EQ(is.grid, was.grid);
    EXPECT_EQ(is.block, was.block);
    EXPECT_EQ(is.stream, was.stream);
    EXPECT_EQ(is.context, was.context);
    EXPECT_EQ(is.correlation, was.correlation);
    EXPECT_EQ(is.call == kNone, was.call == kNone);
  }
}

// The report on an XSpace equals that on the original trace where the format
// has what the rules need.
TEST_F(OwnXSpaceTest, LeadsToTheReportOfTheTraceItWasWrittenFrom) {
  const absl::StatusOr<Trace> trace = ReadTrace(
      STEPSCOPE_TEST_DATA "/traces/resnet50_v100_workers0.pt.trace.json.gz");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  const Report was = Analyze(*trace);
  const Report is = Analyze(Again(*trace));
  EXPECT_EQ(is.steps.count, was.steps.count);
  EXPECT_NEAR(is.steps.mean_ms, was.steps.mean_ms, 0.01 * was.steps.mean_ms);
  ASSERT_FALSE(was.findings.empty());
  ASSERT_FALSE(is.findings.empty());
  EXPECT_EQ(is.findings[0].id, was.findings[0].id);
  EXPECT_NEAR(is.findings[0].gain.expected_ms, was.findings[0].gain.expected_ms,
              0.1 * was.findings[0].gain.expected_ms);
  for (const auto& [cause, ms] : was.time_split_ms) {
    EXPECT_NEAR(is.time_split_ms.at(cause), ms, 0.02 * was.steps.mean_ms)
        << cause;
  }
}

// Any cut and any wrong byte ends in a Trace or an error.
TEST_F(OwnXSpaceTest, EveryCutGivesATraceThatSaysSoOrAnError) {
  const std::string path = folder_.At("whole.xplane.pb");
  ASSERT_TRUE(WriteTrace(RandomTrace({.seed = 2, .steps = 1}), {},
                         Format::kXSpace, path)
                  .ok());
  const std::string whole = ReadBytes(path);
  const std::string cut = folder_.At("cut.xplane.pb");
  size_t with_rows = 0;
  for (size_t size = 70; size < whole.size(); size += whole.size() / 200 + 1) {
    folder_.Write("cut.xplane.pb", whole.substr(0, size));
    const absl::StatusOr<Trace> trace = ReadTrace(cut);
    if (!trace.ok()) {
      EXPECT_EQ(trace.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    const bool says_so = std::ranges::any_of(
        trace->losses(),
        [](const Loss& loss) { return loss.name == "truncated-file"; });
    // A cut between two planes looks like the end of the file.
    if (says_so) ++with_rows;
  }
  EXPECT_GT(with_rows, 50u);
  for (size_t at = 0; at < whole.size(); at += whole.size() / 400 + 1) {
    for (char byte : {'\0', '\xff', '\x7f', '\x0a'}) {
      std::string text = whole;
      text[at] = byte;
      folder_.Write("cut.xplane.pb", text);
      ReadTrace(cut).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace stepscope::own_xspace_test
