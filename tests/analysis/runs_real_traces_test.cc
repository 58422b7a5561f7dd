// Checks pairs and sets of traces that other people recorded against known
// facts. The second trace of a pair is the first with a fix.
#include <gtest/gtest.h>
#include <stepscope/compare.h>
#include <stepscope/ranks.h>
#include <stepscope/read.h>

#include <algorithm>
#include <string>

#include "dlrm_ranks.h"
#include "rules/rule_testing.h"
#include "support/real_trace_path.h"

namespace stepscope::runs_real_traces_test {
namespace {

TEST(RunsRealTracesTest, DlrmIsImbalancedAndHasNoStraggler) {
  const std::vector<RankDigest> ranks = DlrmDigests();
  if (ranks.empty()) GTEST_SKIP() << "dlrm_v100_8ranks is not at hand";
  ASSERT_EQ(ranks.size(), 8u);
  const Report run = AnalyzeRanks(ranks);
  EXPECT_EQ(run.ranks.why_not, "");
  EXPECT_EQ(run.ranks.collectives, 8);
  EXPECT_LT(run.ranks.clock_residual_us, 2);
  EXPECT_NE(Find(run, "imbalanced-load"), nullptr);
  EXPECT_TRUE(IsClean(run, "straggler-rank"));
  EXPECT_EQ(Find(run, "exposed-collective"), nullptr);
  // A separate script computed these waits, without the waits that computation
  // covers.
  const double waits_ms[] = {5.6, 11.1, 3.3, 9.6, 6.4, 6.0, 3.3, 1.5};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_NEAR(run.ranks.rows[rank].waiting_ms, waits_ms[rank], 0.3) << rank;
  }
  EXPECT_EQ(run.ranks.rows[7].last, 5);
  EXPECT_EQ(run.ranks.rows[5].last, 2);
  EXPECT_EQ(run.ranks.rows[4].last, 1);
}

TEST(RunsRealTracesTest, FourLoaderWorkersGainWhatWasPredicted) {
  const std::string before =
      RealTracePath("resnet50_v100_workers0.pt.trace.json.gz");
  const std::string after =
      RealTracePath("resnet50_v100_workers4.pt.trace.json.gz");
  if (before.empty() || after.empty()) GTEST_SKIP() << "not at hand";
  const absl::StatusOr<Trace> a = ReadTrace(before), b = ReadTrace(after);
  ASSERT_TRUE(a.ok() && b.ok());
  const Comparison c = Compare(*a, *b);
  // The workers convert the pictures now, but these are still uploaded as
  // float.
  EXPECT_EQ(c.resolved_findings,
            (std::vector<std::string>{"sync-data-loading"}));
  EXPECT_NEAR(c.measured.expected_ms, 48.5, 2.5);
  EXPECT_EQ(c.predicted_kind, GainKind::kPredicted);
  EXPECT_NEAR(c.predicted.expected_ms, c.measured.expected_ms,
              0.15 * c.measured.expected_ms);
  EXPECT_EQ(c.causes.at(0).name, "data");
}

TEST(RunsRealTracesTest, PinningGainsWhatWasPredicted) {
  const std::string before = RealTracePath("h2d_a100_pageable.json.gz");
  const std::string after = RealTracePath("h2d_a100_pinned.json.gz");
  if (before.empty() || after.empty()) GTEST_SKIP() << "not at hand";
  const absl::StatusOr<Trace> a = ReadTrace(before), b = ReadTrace(after);
  ASSERT_TRUE(a.ok() && b.ok());
  const Comparison c = Compare(*a, *b);
  EXPECT_EQ(std::ranges::count(c.resolved_findings, "h2d-pageable"), 1);
  EXPECT_NEAR(c.measured.expected_ms, 37.2, 0.5);
  EXPECT_TRUE(c.significant);
  // The downloads are pinned as well, but their gain is only a bound.
  EXPECT_EQ(std::ranges::count(c.resolved_findings, "d2h-pageable"), 1);
  EXPECT_EQ(c.predicted_kind, GainKind::kBound);
  EXPECT_GT(c.predicted.expected_ms, c.measured.expected_ms);
  // The step bounds both gains together, not their sum.
  EXPECT_LE(c.predicted.expected_ms, c.before.median_ms);
  ASSERT_EQ(c.predicted_parts.size(), 2u);
  EXPECT_EQ(c.predicted_parts[0].id, "h2d-pageable");
  EXPECT_EQ(c.predicted_parts[0].kind, GainKind::kPredicted);
  EXPECT_EQ(c.predicted_parts[1].kind, GainKind::kBound);
  const std::string text = ToMarkdown(c);
  EXPECT_NE(text.find("at most 68.0 ms faster per step, which is the whole "
                      "step; findings gone or smaller: h2d-pageable "
                      "(predicted 32.5 ms), "
                      "d2h-pageable (at most 35.6 ms)."),
            std::string::npos)
      << text;
  const Report report = Analyze(*a);
  const auto uploads =
      std::ranges::find(report.findings, "h2d-pageable", &Finding::id);
  ASSERT_NE(uploads, report.findings.end());
  EXPECT_NEAR(uploads->gain.expected_ms, c.measured.expected_ms,
              0.25 * c.measured.expected_ms);
}

}  // namespace
}  // namespace stepscope::runs_real_traces_test
