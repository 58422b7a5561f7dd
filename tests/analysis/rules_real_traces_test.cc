// Runs the rules about loading, copies and waiting on traces that other people
// recorded. All expected numbers were measured independently: in the second
// trace of a pair, or as plain sums in the traces' README.
#include <gtest/gtest.h>
#include <stepscope/read.h>

#include <optional>
#include <string>

#include "analysis/rules/rule_testing.h"
#include "support/real_trace_path.h"

namespace stepscope::rules_real_traces_test {
namespace {

std::optional<Report> ReportOf(const std::string& name) {
  const std::string path = RealTracePath(name);
  if (path.empty()) return std::nullopt;
  const absl::StatusOr<Trace> trace = ReadTrace(path);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  if (!trace.ok()) return std::nullopt;
  return Analyze(*trace);
}

#define REPORT_OR_SKIP(report, name)                                   \
  const std::optional<Report> found_##report = ReportOf(name);         \
  if (!found_##report) {                                               \
    GTEST_SKIP() << name << " is not committed and not in "            \
                 << "../shared/traces; STEPSCOPE_TRACES can name its " \
                 << "folder";                                          \
  }                                                                    \
  const Report& report = *found_##report

TEST(RulesRealTracesTest, Resnet50LoadsInProcess) {
  REPORT_OR_SKIP(report, "resnet50_v100_workers0.pt.trace.json.gz");
  ASSERT_FALSE(report.findings.empty());
  const Finding& first = report.findings.front();
  EXPECT_EQ(first.id, "sync-data-loading");
  EXPECT_EQ(first.severity, FindingSeverity::kCritical);
  // In the second trace of the pair, the median step is 49.8 ms shorter.
  EXPECT_NEAR(first.gain.expected_ms, 49.8, 0.15 * 49.8);
  EXPECT_NE(first.fix_python.find("pin_memory=True"), std::string::npos);
  // 12 unpinned copies take 11.5 ms in total. There is no item() and no
  // blocking upload.
  EXPECT_FALSE(Promises(report, "host-sync"));
  EXPECT_TRUE(IsClean(report, "h2d-blocking"));
}

TEST(RulesRealTracesTest, Resnet50WithWorkersIsNotBlamedForLoading) {
  REPORT_OR_SKIP(report, "resnet50_v100_workers4.pt.trace.json.gz");
  EXPECT_TRUE(IsClean(report, "sync-data-loading"));
  EXPECT_TRUE(IsClean(report, "loader-bound"));
  // Only one upload waited, for work queued during warm-up.
  EXPECT_TRUE(IsClean(report, "h2d-blocking"));
}

TEST(RulesRealTracesTest, PageableUploadsGainWhatPinningGained) {
  REPORT_OR_SKIP(report, "h2d_a100_pageable.json.gz");
  ASSERT_FALSE(report.findings.empty());
  const Finding& first = report.findings.front();
  EXPECT_EQ(first.id, "h2d-pageable");
  EXPECT_EQ(first.severity, FindingSeverity::kCritical);
  // The pair: 68.3 ms before, 30.7 ms after.
  EXPECT_GE(first.gain.expected_ms, 37.6 / 1.25);
  EXPECT_LE(first.gain.expected_ms, 37.6 * 1.25);
}

TEST(RulesRealTracesTest, PinnedUploadsHaveNothingToGain) {
  REPORT_OR_SKIP(report, "h2d_a100_pinned.json.gz");
  EXPECT_TRUE(IsClean(report, "h2d-pageable"));
  EXPECT_TRUE(IsClean(report, "h2d-blocking"));
  EXPECT_TRUE(IsClean(report, "h2d-fp32-input"));
  const Finding* sync = Find(report, "explicit-sync");
  ASSERT_NE(sync, nullptr);  // blocked for 30.6 of 30.7 ms
  EXPECT_EQ(sync->severity, FindingSeverity::kNote);
}

TEST(RulesRealTracesTest, RecommenderReadsBackTooOften) {
  REPORT_OR_SKIP(report, "recsys_a100_rank3of8.json.gz");
  const Finding* finding = Find(report, "host-sync");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kHigh);
  // A prototype of the replay predicted a gain of 11.6 ms.
  EXPECT_NE(finding->evidence.find("12.6 ms of the 77.5 ms step"),
            std::string::npos)
      << finding->evidence;
  EXPECT_NEAR(finding->gain.expected_ms, 11.6, 0.15 * 11.6);
  EXPECT_EQ(Find(report, "launch-bound"), nullptr);  // the same idle time
  EXPECT_TRUE(IsClean(report, "h2d-pageable"));
  EXPECT_TRUE(IsClean(report, "loader-bound"));
}

TEST(RulesRealTracesTest, Owlv2WaitsInUploadsBesideItsLoader) {
  REPORT_OR_SKIP(report, "owlv2_h100.json.gz");
  // The finding about the quality of the recording comes first.
  ASSERT_GE(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].id, "observer-effect");
  EXPECT_EQ(report.findings[0].confidence, Confidence::kHint);
  const Finding& first = report.findings[1];
  EXPECT_EQ(first.id, "sync-data-loading");
  EXPECT_EQ(first.gain_kind, GainKind::kPredicted);
  // Loading takes 619 ms with the profiler. What it spent on recording ops and
  // Python frames there is no gain, and fetching finished batches remains.
  EXPECT_NEAR(first.gain.expected_ms, 616, 1);
  // The uploads wait for a busy GPU for 361 ms. Without them, the reads would
  // wait.
  const Finding* uploads = Find(report, "h2d-blocking");
  ASSERT_NE(uploads, nullptr);
  EXPECT_EQ(uploads->gain_kind, GainKind::kPredicted);
  EXPECT_EQ(uploads->severity, FindingSeverity::kNote);
  EXPECT_NE(uploads->evidence.find("could load the next batch"),
            std::string::npos);
  // 55 copies to the host block it for 15.3 ms, and the GPU is idle after them.
  const Finding* reads = Find(report, "host-sync");
  ASSERT_NE(reads, nullptr);
  EXPECT_NEAR(reads->gain.expected_ms, 14.7, 0.5);
  EXPECT_EQ(reads->severity, FindingSeverity::kLow);
}

TEST(RulesRealTracesTest, ToyDoesNotSayWhetherMemoryWasPinned) {
  REPORT_OR_SKIP(report, "toy_mi250.json.gz");
  EXPECT_NE(WhySkipped(report, "h2d-pageable"), "");
}

TEST(RulesRealTracesTest, ItemOfCpuTensorsIsNoFinding) {
  REPORT_OR_SKIP(report, "gloo_cpu_rank34of300.json.gz");
  EXPECT_EQ(WhySkipped(report, "host-sync"), "no GPU was recorded");
  EXPECT_EQ(Find(report, "logging-checkpoint-stall"), nullptr);
}

}  // namespace
}  // namespace stepscope::rules_real_traces_test
