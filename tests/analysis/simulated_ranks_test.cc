// Simulated jobs of several ranks with one planted cause. The report must name
// the rank and the cause, and predict the job's step without that cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/rank_digest.h>
#include <stepscope/ranks.h>

#include <string>
#include <vector>

#include "ranks/late_ranks.h"
#include "rules/rule_testing.h"
#include "support/program_simulator.h"

namespace stepscope::simulated_ranks_test {
namespace {

using ::testing::HasSubstr;

// Data-parallel training with four buckets.
std::string JobText(const std::string& machine, const std::string& planted,
                    const std::string& forward = "do forward") {
  return R"(
gpu A100 pcie=24 pageable=5 cc=8.0 sms=108 bandwidth=2039
cores 16
steps 8 warmup=6
)" + machine +
         R"(
define forward { range phase forward { repeat 40 { op aten::mm 12us grad { kernel gemm 90us } } } }
define slow { range phase forward { repeat 40 { op aten::mm 12us grad { kernel gemm 200us } } } }
define even { range phase forward { repeat 40 { op aten::mm 12us grad { kernel gemm 117.5us } } } }
step {
)" + planted +
         "\n" + forward + R"(
  backward { repeat 4 { repeat 10 { node MmBackward0 10us { op aten::mm 14us { kernel gemm 92us } } accumulate 5us { op aten::detach 2us } } accumulate 5us { collective all_reduce 25MB } } }
  join
  range optimizer "Optimizer.step#AdamW.step" { op aten::_fused_adamw_ 90us { kernel adam 300us } }
  item
})";
}

struct Job {
  Report report;
  double step_ms = 0;  // the simulated step
};

// Converts the digests to bytes and back, as inside a job.
Job RunJob(const std::string& text) {
  const ProgramRun run = MustRunProgram(text);
  std::vector<RankDigest> digests;
  for (const Trace& trace : run.ranks) {
    const std::string bytes = SerializeDigest(DigestRank(trace));
    EXPECT_LE(bytes.size(), size_t{64} << 10);
    auto digest = ParseDigest(bytes);
    EXPECT_TRUE(digest.ok()) << digest.status();
    if (digest.ok()) digests.push_back(*std::move(digest));
  }
  return {AnalyzeRanks(digests), run.mean_step_ms};
}

std::string EvidenceOf(const Report& report, const std::string& rank) {
  const Finding* finding = Find(report, "straggler-rank");
  if (finding == nullptr) return "no straggler-rank";
  EXPECT_THAT(finding->where, HasSubstr(rank));
  return finding->evidence + " FIX: " + finding->fix_python;
}

constexpr char kFour[] = "ranks 4 network=200\n";

TEST(SimulatedRanksTest, TheLoaderOfTheLateRankIsNamed) {
  const Job job =
      RunJob(JobText(std::string(kFour) + "loader workers=0 cpu=4ms batch=64",
                     "load; rank 2 { load }"));
  const std::string text = EvidenceOf(job.report, "rank 2");
  EXPECT_THAT(text, HasSubstr("loading data"));
  EXPECT_THAT(text, HasSubstr("its loader is slow"));
}

TEST(SimulatedRanksTest, TheHostOfTheLateRankIsNamed) {
  const Job job = RunJob(JobText(kFour, "rank 2 { host 5ms }"));
  const std::string text = EvidenceOf(job.report, "rank 2");
  EXPECT_THAT(text, HasSubstr("its host is slow"));
}

TEST(SimulatedRanksTest, SlowerKernelsAndMoreKernelsAreDistinguished) {
  const std::string slower =
      EvidenceOf(RunJob(JobText(kFour, "",
                                "rank 0 { do forward }; rank 1 { do forward }; "
                                "rank 2 { do slow }; rank 3 { do forward }"))
                     .report,
                 "rank 2");
  EXPECT_THAT(slower, HasSubstr("as many kernels as the others"));
  EXPECT_THAT(slower, HasSubstr("the same kernels take longer"));
  const std::string more = EvidenceOf(
      RunJob(JobText(kFour, "rank 2 { do forward }")).report, "rank 2");
  EXPECT_THAT(more, HasSubstr("kernels per step, the others"));
  EXPECT_THAT(more, HasSubstr("it has more work"));
}

TEST(SimulatedRanksTest, TheClockOfTheLateRankIsNamed) {
  const std::string text =
      EvidenceOf(RunJob(JobText(std::string(kFour) +
                                    "throttle 0.4 after=0 reasons=4 rank=2",
                                ""))
                     .report,
                 "rank 2");
  EXPECT_THAT(text, HasSubstr("1414 MHz"));
  EXPECT_THAT(text, HasSubstr("1980 MHz"));
  EXPECT_THAT(text, HasSubstr("lower clock"));
}

// Returns the reason given for a rank that computes 1.9 times as long as the
// others.
std::string ReasonOf(double sm_clock_mhz, double kernels) {
  RankComparison ranks;
  ranks.has_gpu = true;
  for (int32_t rank = 0; rank < 4; ++rank) {
    ranks.rows.push_back({.rank = rank,
                          .busy_ms = rank == 2 ? 19.0 : 10.0,
                          .sm_clock_mhz = rank == 2 ? sm_clock_mhz : 1400.0,
                          .kernels = rank == 2 ? kernels : 100.0});
  }
  return LongerInWords(ranks, ranks.rows[2]);
}

TEST(LongerComputingTest, TheLargestFactorIsTheReason) {
  EXPECT_EQ(ReasonOf(800, 100),
            " Its GPU ran at 800 MHz on average, those of the others at 1400 "
            "MHz.");
  // The clock explains a factor of 1.4; an unknown cause the remaining 1.36.
  EXPECT_THAT(ReasonOf(1000, 100), HasSubstr("1000 MHz on average"));
  // Factors of 1.3 and 1.46.
  EXPECT_EQ(ReasonOf(1077, 146),
            " It runs 146 kernels per step, the others 100.");
  EXPECT_EQ(ReasonOf(1077, 110),
            " It runs 110 kernels per step, the others 100, but they take "
            "longer as well, at 1077 MHz (the others: 1400 MHz).");
  EXPECT_EQ(ReasonOf(1400, 100),
            " It runs as many kernels as the others; they take longer, at the "
            "same clock.");
  EXPECT_EQ(ReasonOf(-1, 140),
            " It runs 140 kernels per step, the others 100.");
}

TEST(SimulatedRanksTest, LateRanksOfOneMachineNameTheMachine) {
  const Job job = RunJob(JobText("ranks 6 network=200 hosts=3\n",
                                 "rank 2 { host 5ms }; rank 3 { host 5ms }"));
  const Finding* finding = Find(job.report, "straggler-rank");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where, "machine host1");
  EXPECT_THAT(finding->evidence, HasSubstr("ranks 2 and 3"));
  // If the late ranks are on different machines, no machine is blamed.
  const Job apart = RunJob(JobText("ranks 6 network=200 hosts=3\n",
                                   "rank 1 { host 5ms }; rank 3 { host 5ms }"));
  const Finding* other = Find(apart.report, "straggler-rank");
  EXPECT_TRUE(other == nullptr ||
              other->where.find("machine") == std::string::npos)
      << other->where;
}

// Compares the predicted step without the planted cause with the simulated one.
void ExpectMended(const std::string& machine, const std::string& planted,
                  const std::string& rest = "") {
  const Job job = RunJob(JobText(machine, planted + rest));
  const double truth =
      MustRunProgram(JobText(machine, rest), {.seed = 7, .record = false})
          .mean_step_ms;
  const MendedRank& mended = job.report.ranks.mended;
  ASSERT_EQ(job.report.ranks.why_not_mended, "");
  EXPECT_EQ(mended.rank, 2);
  EXPECT_GT(job.step_ms, 1.1 * truth) << "nothing was planted";
  EXPECT_NEAR(mended.before_ms, job.step_ms, 0.03 * job.step_ms);
  EXPECT_NEAR(mended.after_ms, truth, 0.05 * truth);
  EXPECT_LE(mended.low_ms, mended.after_ms);
  EXPECT_GE(mended.high_ms, mended.after_ms);
  const Finding* finding = Find(job.report, "straggler-rank");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->gain_kind, GainKind::kPredicted);
  EXPECT_NEAR(finding->gain.expected_ms, job.step_ms - truth, 0.05 * truth);
}

TEST(SimulatedRanksTest, ReplayOfAllRanksPredictsTheJobWithoutTheSlowRank) {
  ExpectMended(kFour, "rank 2 { host 5ms }\n");
  ExpectMended(kFour, "rank 2 { do forward }\n");
}

// With equal batches, the other ranks compute longer than they do now.
TEST(SimulatedRanksTest, LargerBatchesOfOneRankAreBalanced) {
  const std::string planted =
      "rank 0 { do forward }; rank 1 { do forward }; rank 2 { do slow }; "
      "rank 3 { do forward }";
  const ProgramRun run = MustRunProgram(JobText(kFour, "", planted));
  std::vector<RankDigest> digests;
  for (const Trace& trace : run.ranks) {
    digests.push_back(DigestRank(trace));
    const bool longer = digests.size() == 3;
    digests.back().step_shapes.clear();
    for (const StepTimes& step : digests.back().report.step_times) {
      digests.back().step_shapes.emplace_back(step.number, longer ? 2 : 1);
    }
  }
  const Report report = AnalyzeRanks(digests);
  ASSERT_EQ(report.ranks.why_not_mended, "");
  EXPECT_TRUE(report.ranks.mended.balanced);
  // 40 kernels of (3 * 90 + 200) / 4 us each.
  const double truth =
      MustRunProgram(JobText(kFour, "", "do even"), {.record = false})
          .mean_step_ms;
  ASSERT_GT(run.mean_step_ms, 1.2 * truth) << "nothing was planted";
  EXPECT_NEAR(report.ranks.mended.after_ms, truth, 0.05 * truth);
  const Finding* finding = Find(report, "straggler-rank");
  ASSERT_NE(finding, nullptr);
  EXPECT_THAT(finding->fix_python, HasSubstr("balance the batches"));
  EXPECT_NEAR(finding->gain.expected_ms, run.mean_step_ms - truth,
              0.05 * truth);
}

TEST(SimulatedRanksTest, WithoutTheSlowRankTheSecondSlowestSetsThePace) {
  const std::string second = "rank 1 { host 2ms }\n";
  ExpectMended(kFour, "rank 2 { host 6ms }\n", second);
  const Job job = RunJob(JobText(kFour, "rank 2 { host 6ms }\n" + second));
  EXPECT_EQ(job.report.ranks.mended.next_rank, 1);
}

TEST(SimulatedRanksTest, PredictsNothingIfWaitsAreNotRecorded) {
  std::vector<RankDigest> digests;
  for (const Trace& trace :
       MustRunProgram(JobText(kFour, "rank 2 { host 12ms }\n")).ranks) {
    digests.push_back(DigestRank(trace));
  }
  const RankComparison all = AnalyzeRanks(digests).ranks;
  ASSERT_EQ(all.why_not_mended, "");
  ASSERT_GT(all.waiting_ms, 0.2 * all.step_ms);
  // The recording of one of the three waiting ranks does not show its wait.
  for (RankCollective& one : digests[0].collectives) one.stalled_ns = 0;
  EXPECT_THAT(AnalyzeRanks(digests).ranks.why_not_mended,
              HasSubstr("does not show what the ranks wait for"));
}

TEST(SimulatedRanksTest, EqualRanksHaveNoSlowOne) {
  const Job job = RunJob(JobText(kFour, ""));
  EXPECT_TRUE(IsClean(job.report, "straggler-rank"));
  const MendedRank& mended = job.report.ranks.mended;
  EXPECT_LT(mended.before_ms - mended.after_ms, 0.02 * job.step_ms);
}

// Each rank is late in every second step, by 8 ms, so each waits for 4 ms on
// average in the first all-reduce. Moving the data takes 3 ms, with the latency
// of 40 calls, and no buckets save more than that.
TEST(SimulatedRanksTest, BucketsDoNotShortenTheWaitForALateRank) {
  const Job job = RunJob(R"(
gpu A100 pcie=24 pageable=5 cc=8.0 sms=108 bandwidth=2039
cores 16
steps 8 warmup=6
ranks 2 network=20
step {
  rank 0 { every 2 { op aten::sort 20us { kernel sort 8ms } } }
  rank 1 { every 2 offset=1 { op aten::sort 20us { kernel sort 8ms } } }
  range phase forward { repeat 40 { op aten::mm 12us grad { kernel gemm 90us } } }
  backward { repeat 40 { node MmBackward0 10us { op aten::mm 14us { kernel gemm 92us } } accumulate 5us { op aten::detach 2us } } }
  repeat 40 { collective all_reduce 1MB; join }
  range optimizer "Optimizer.step#AdamW.step" { op aten::_fused_adamw_ 90us { kernel adam 300us } }
  item
})");
  EXPECT_NE(Find(job.report, "imbalanced-load"), nullptr);
  const Finding* finding = Find(job.report, "ddp-bucket-shape");
  ASSERT_NE(finding, nullptr);
  EXPECT_GT(finding->gain.expected_ms, 0.5);
  EXPECT_LT(finding->gain.expected_ms, 3.1) << finding->evidence;
}

}  // namespace
}  // namespace stepscope::simulated_ranks_test
