#include "engine/ranking.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "support/gpu_loop.h"

namespace stepscope::ranking_test {
namespace {

SizedFinding Gaining(const std::string& id, double ms,
                     GainKind kind = GainKind::kPredicted,
                     Confidence confidence = Confidence::kStrong) {
  SizedFinding sized;
  sized.finding.id = id;
  sized.finding.confidence = confidence;
  sized.finding.gain_kind = kind;
  sized.finding.gain = {.expected_ms = ms, .low_ms = ms, .high_ms = ms};
  return sized;
}

// Returns the IDs in the order of the report, for a run with steps of 10 ms.
std::vector<std::string> Ranked(std::vector<SizedFinding> found) {
  static const ProgramRun run =
      RunGpuLoop("kernel gemm 10ms\nsync device\n", {.steps = 6});
  std::vector<std::string> superseded, ids;
  Rank(AnalysisContext(run.ranks[0]), found, superseded);
  for (const SizedFinding& one : found) ids.push_back(one.finding.id);
  return ids;
}
using Ids = std::vector<std::string>;

// After attention's 4 ms, 9 ms become 5 ms: more than 4, but not four times as
// much.
TEST(RankingTest, WhatAChangeLeavesStandsBehindIt) {
  EXPECT_EQ(Ranked({Gaining("launch-bound", 9), Gaining("fp64-compute", 4.5),
                    Gaining("attention-by-hand", 4)}),
            Ids({"fp64-compute", "attention-by-hand", "launch-bound"}));
  // Other findings are ordered by gain.
  EXPECT_EQ(Ranked({Gaining("host-sync", 5), Gaining("attention-by-hand", 4)}),
            Ids({"host-sync", "attention-by-hand"}));
}

TEST(RankingTest, UnlessItIsMuchMore) {
  const auto first = [](double owned_ms) {
    return Ranked({Gaining("launch-bound", 8 + owned_ms),
                   Gaining("attention-by-hand", owned_ms)})[0];
  };
  EXPECT_EQ(first(2.05), "attention-by-hand");
  EXPECT_EQ(first(1.95), "launch-bound");
}

// A rule that limits its severity is not sure of its gain either.
TEST(RankingTest, SeverityComesBeforeGain) {
  SizedFinding limited = Gaining("small-micro-batches", 9, GainKind::kBound);
  limited.at_most = FindingSeverity::kMedium;
  EXPECT_EQ(Ranked({limited, Gaining("unread-gradients", 4)}),
            Ids({"unread-gradients", "small-micro-batches"}));
}

// With anomaly mode on, all other times are too long.
TEST(RankingTest, DebuggingAidsComeFirst) {
  EXPECT_EQ(Ranked({Gaining("tensor-cores-idle", 4),
                    Gaining("debug-api-on", 1, GainKind::kBound)}),
            Ids({"debug-api-on", "tensor-cores-idle"}));
}

// The change does not move ahead of findings that rank after ordinary ones.
TEST(RankingTest, OnlyBehindAnOrdinaryChange) {
  SizedFinding question = Gaining("attention-by-hand", 4);
  question.asks = true;
  EXPECT_EQ(Ranked({Gaining("launch-bound", 9), question}),
            Ids({"launch-bound", "attention-by-hand"}));
}

TEST(RankingTest, HintsThatNeedOtherChangesFirstComeLater) {
  const auto first = [](SizedFinding hint) {
    return Ranked({std::move(hint), Gaining("fp64-compute", 1)})[0];
  };
  const SizedFinding launching =
      Gaining("launch-bound", 9, GainKind::kBound, Confidence::kHint);
  EXPECT_EQ(first(launching), "fp64-compute");
  // One finding that the replay predicts, and one that is not a hint.
  SizedFinding replayed = launching;
  replayed.edits.push_back({.dispatch_ns = 2'000});
  EXPECT_EQ(first(replayed), "launch-bound");
  EXPECT_EQ(first(Gaining("launch-bound", 9, GainKind::kBound)),
            "launch-bound");
  EXPECT_EQ(first(Gaining("tf32-off", 9, GainKind::kBound, Confidence::kHint)),
            "tf32-off");
}

}  // namespace
}  // namespace stepscope::ranking_test
