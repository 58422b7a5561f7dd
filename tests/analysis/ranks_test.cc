// Tests runs of several ranks as event lists: steps of 100 ms with two
// all-reduces, which end on all ranks 0.5 ms after the last rank arrives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stepscope/analysis.h>
#include <stepscope/ranks.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "analysis/ranks/late_ranks.h"
#include "analysis/ranks/rank_comparison.h"
#include "rules/rule_testing.h"
#include "support/trace_text.h"

namespace stepscope::ranks_test {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 6;
constexpr int64_t kMoveNs = 500'000;

// Returns how late `rank` arrives at a collective, in ns.
using Lateness = std::function<int64_t(int rank, int step, int collective)>;

struct Job {
  int ranks = 8;
  Lateness late = [](int, int, int) { return 0; };
  std::function<int64_t(int rank)> clock = [](int) { return 0; };
  int64_t loader_of_rank_3_ns = 0;
  int longer_rank = -1;  // a rank that computes for longer than the others,
  int64_t longer_ns = 10'000'000;  // by this time
  int skip_first_of_rank = -1;  // a rank whose recording misses one collective
  bool covered = false;         // all collectives overlap with computation
  int steps = kSteps;
  // Start of a step, from where it would be.
  std::function<int64_t(int rank)> start = [](int) { return 0; };
};

std::string Span(int64_t begin, int64_t end) {
  return std::to_string(begin) + ".." + std::to_string(end);
}

Trace RankTrace(const Job& job, int rank) {
  std::string text = "run rank=" + std::to_string(rank) +
                     " world_size=" + std::to_string(job.ranks) + "\n";
  int correlation = 1;
  const int64_t shift = 1'000'000'000 + job.clock(rank);
  const auto kernel = [&](int64_t begin, int64_t end, int stream,
                          const char* name) {
    text += "runtime_call " + Span(begin - 900, begin - 500) +
            " thread=0 correlation=" + std::to_string(correlation) +
            " cudaLaunchKernel\nkernel " + Span(begin, end) +
            " stream=" + std::to_string(stream) +
            " correlation=" + std::to_string(correlation) + " " + name + "\n";
    ++correlation;
  };
  for (int step = 0; step < job.steps; ++step) {
    const int64_t base = shift + step * 100'000'000;
    text += "step " + Span(base + job.start(rank), base + 100'000'000) +
            " thread=0 number=" + std::to_string(step) + "\n";
    if (rank == 3 && job.loader_of_rank_3_ns > 0) {
      text += "range " + Span(base, base + job.loader_of_rank_3_ns) +
              " thread=0 kind=loader "
              "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__\n";
    }
    const int64_t loaded = rank == 3 ? job.loader_of_rank_3_ns : 0;
    const int64_t longer = rank == job.longer_rank ? job.longer_ns : 0;
    kernel(base + loaded + 100'000, base + loaded + 20'000'000 + longer, 7,
           "gemm");
    for (int k = 0; k < 2; ++k) {
      int64_t last = 0;
      for (int other = 0; other < job.ranks; ++other) {
        last = std::max(last, job.late(other, step, k));
      }
      const int64_t begin =
          base + 40'000'000 + k * 30'000'000 + job.late(rank, step, k);
      const int64_t end = base + 40'000'000 + k * 30'000'000 + last + kMoveNs;
      if (job.skip_first_of_rank == rank && step == 0 && k == 0) continue;
      kernel(begin, end, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
      if (job.covered) kernel(begin, end, 7, "gemm");
    }
  }
  return TraceFromText(text);
}

std::vector<RankDigest> Digests(const Job& job) {
  std::vector<RankDigest> ranks;
  for (int rank = 0; rank < job.ranks; ++rank) {
    ranks.push_back(DigestRank(RankTrace(job, rank)));
  }
  return ranks;
}
Report Of(const Job& job) { return AnalyzeRanks(Digests(job)); }

// A different rank is late each time.
int64_t Changing(int rank, int step, int collective) {
  return rank == (3 * step + 5 * collective) % 8 ? 8'000'000 : rank * 100'000;
}

TEST(RanksTest, NamesTheOneSlowRankAndWhatItDoes) {
  Job job;
  job.late = [](int rank, int, int) {
    return rank == 3 ? 20'000'000 : rank * 1'000;
  };
  job.loader_of_rank_3_ns = 20'000'000;
  const Report report = Of(job);
  const Finding* finding = Find(report, "straggler-rank");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where.substr(0, 6), "rank 3");
  EXPECT_NE(finding->evidence.find("loading data"), std::string::npos)
      << finding->evidence;
  EXPECT_EQ(finding->gain_kind, GainKind::kBound);
  EXPECT_NEAR(finding->gain.expected_ms, 40, 0.5);
  EXPECT_TRUE(IsClean(report, "imbalanced-load"));
  EXPECT_EQ(report.ranks.rows[3].last, 2 * kSteps);
}

TEST(RanksTest, SaysWhoWaitsForWhom) {
  Job job;
  job.late = [](int rank, int, int) { return rank == 3 ? 20'000'000 : 0; };
  const Report report = Of(job);
  // Every other rank waits for 20 ms at each of two collectives per step.
  ASSERT_EQ(report.ranks.waits.size(), 7u);
  double sum = 0;
  for (const RankWait& wait : report.ranks.waits) {
    EXPECT_EQ(wait.waits_for, 3);
    EXPECT_NE(wait.rank, 3);
    EXPECT_NEAR(wait.ms, 40, 0.5);
    sum += wait.ms;
  }
  EXPECT_NEAR(sum / 8, report.ranks.waiting_ms, 0.5);
}

TEST(RanksTest, FindsNoWaitsIfAllRanksArriveTogether) {
  EXPECT_TRUE(Of(Job()).ranks.waits.empty());
}

TEST(RanksTest, SpeaksOfAGpuOnlyWhereThereIsOne) {
  Job job;
  job.late = [](int rank, int, int) {
    return rank == 3 ? 20'000'000 : rank * 1'000;
  };
  job.loader_of_rank_3_ns = 20'000'000;
  const auto fix = [&](bool has_gpu) {
    std::vector<RankDigest> ranks = Digests(job);
    for (RankDigest& rank : ranks) rank.report.has_gpu = has_gpu;
    ranks[3].report.time_split_ms["host_code"] = 60;
    const Report report = AnalyzeRanks(ranks);
    const Finding* finding = Find(report, "straggler-rank");
    return finding == nullptr ? "" : finding->fix_python;
  };
  EXPECT_NE(fix(true).find("NUMA node of its GPU"), std::string::npos)
      << fix(true);
  EXPECT_NE(fix(false).find("cores of one NUMA node"), std::string::npos)
      << fix(false);
}

TEST(RanksTest, StaysSilentOnJitter) {
  std::mt19937 random(7);
  std::vector<int64_t> jitter(8 * kSteps * 2);
  for (int64_t& ns : jitter) ns = static_cast<int64_t>(random() % 3'000);
  Job job;
  job.late = [&](int rank, int step, int k) {
    return jitter[static_cast<size_t>((rank * kSteps + step) * 2 + k)];
  };
  const Report report = Of(job);
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
  EXPECT_TRUE(IsClean(report, "imbalanced-load"));
  EXPECT_EQ(report.ranks.collectives, 2 * kSteps);
  EXPECT_EQ(report.ranks.skewed, 0);
}

TEST(RanksTest, StaysSilentOnOnePerCentOfJitter) {
  std::mt19937 random(11);
  std::vector<int64_t> jitter(8 * kSteps * 2);
  for (int64_t& ns : jitter) ns = static_cast<int64_t>(random() % 1'000'000);
  Job job;
  job.late = [&](int rank, int step, int k) {
    return jitter[static_cast<size_t>((rank * kSteps + step) * 2 + k)];
  };
  const Report report = Of(job);
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
  EXPECT_TRUE(IsClean(report, "imbalanced-load"));
}

TEST(RanksTest, CallsItImbalanceWhereTheLateRankChanges) {
  Job job;
  job.late = &Changing;
  const Report report = Of(job);
  const Finding* finding = Find(report, "imbalanced-load");
  ASSERT_NE(finding, nullptr);
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
  EXPECT_NEAR(finding->gain.expected_ms, 13.4, 0.3);
  EXPECT_EQ(Find(report, "exposed-collective"), nullptr);
  EXPECT_EQ(std::ranges::count(report.superseded,
                               "exposed-collective (by imbalanced-load)"),
            1);
}

// Python's garbage collector stops another rank in each step.
TEST(RanksTest, BalancesHostsThatStopInTurn) {
  Job job;
  job.late = &Changing;
  // The fix if the rank that the others wait for most spends more on `cause`.
  const auto fix = [&](const std::string& cause) -> std::string {
    for (int late = 0; late < 8; ++late) {
      std::vector<RankDigest> ranks = Digests(job);
      for (RankDigest& rank : ranks) rank.report.time_split_ms[cause] = 10;
      ranks[static_cast<size_t>(late)].report.time_split_ms[cause] = 25;
      const Report report = AnalyzeRanks(ranks);
      const Finding* finding = Find(report, "imbalanced-load");
      if (finding != nullptr &&
          finding->evidence.find("Rank " + std::to_string(late) + " spends") !=
              std::string::npos) {
        return finding->fix_python;
      }
    }
    return "";
  };
  EXPECT_THAT(fix("host_code"), HasSubstr("in the same step on all ranks"));
  EXPECT_THAT(fix("data"), HasSubstr("a batch sampler"));
}

TEST(RanksTest, WaitsForLateStartsOfASingleStepAreNoImbalance) {
  Job job;
  job.start = [](int rank) { return rank * 2'000'000; };
  // Ranks that start late are late at the first collective. The second one is
  // their own.
  job.late = [](int rank, int, int collective) {
    return collective == 0 ? rank * 2'000'000 : (7 - rank) * 3'000'000;
  };
  const Report several = Of(job);
  EXPECT_EQ(several.ranks.start_wait_ms, 0);
  EXPECT_NEAR(several.ranks.waiting_ms, 7 + 10.5, 0.1);
  job.steps = 1;
  const Report report = Of(job);
  EXPECT_NEAR(report.ranks.starts_apart_ms, 14, 0.1);
  EXPECT_NEAR(report.ranks.start_wait_ms, 7, 0.1);
  const Finding* finding = Find(report, "imbalanced-load");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 10.5, 0.1);
  EXPECT_THAT(finding->evidence, HasSubstr("14.0 ms apart"));
}

TEST(RanksTest, LateWorkInASingleStepIsImbalance) {
  Job job;
  job.steps = 1;
  job.late = [](int rank, int, int collective) {
    return collective == 0 ? rank * 2'000'000 : (7 - rank) * 3'000'000;
  };
  const Report report = Of(job);
  EXPECT_EQ(report.ranks.start_wait_ms, 0);
  const Finding* finding = Find(report, "imbalanced-load");
  ASSERT_NE(finding, nullptr);
  EXPECT_NEAR(finding->gain.expected_ms, 17.5, 0.1);
}

TEST(RanksTest, ImbalanceBeginsAtThreePerCentOfTheStep) {
  const auto waiting = [](int64_t ns) {
    Job job;
    // Half of the ranks wait, in turns, for 1.5 times the mean wait.
    job.late = [ns](int rank, int step, int k) {
      return rank % 2 == (step + k) % 2 ? ns : 0;
    };
    return Of(job);
  };
  EXPECT_TRUE(IsClean(waiting(2'900'000), "imbalanced-load"));
  EXPECT_NE(Find(waiting(3'100'000), "imbalanced-load"), nullptr);
}

// The waits of a few steps vary too much to prove a share of 3 %.
TEST(RanksTest, WaitsThatVaryMustExceedTheirNoise) {
  const auto waiting = [](int64_t ns, int64_t more) {
    Job job;
    job.late = [=](int rank, int step, int k) {
      return rank % 2 == (step + k) % 2 ? ns + (step % 3 == 0 ? more : 0) : 0;
    };
    return Of(job);
  };
  EXPECT_NE(Find(waiting(3'500'000, 0), "imbalanced-load"), nullptr);
  EXPECT_TRUE(IsClean(waiting(2'000'000, 4'500'000), "imbalanced-load"));
}

TEST(RanksTest, LargeWaitsAreTimeLostHoweverMuchTheyVary) {
  Job job;
  job.late = [](int rank, int step, int k) {
    const int64_t ns = step % 3 == 2 ? 25'000'000 : 1'000'000;
    return rank % 2 == (step + k) % 2 ? ns : 0;
  };
  EXPECT_NE(Find(Of(job), "imbalanced-load"), nullptr);
}

TEST(RanksTest, AlignsClocksByTheEndsOfCollectives) {
  Job skewed;
  skewed.late = &Changing;
  skewed.clock = [](int rank) { return rank * 7'000'000; };
  const Report report = Of(skewed);
  Job level;
  level.late = &Changing;
  const Report truth = Of(level);
  EXPECT_NEAR(report.ranks.clock_residual_us, 0, 0.01);
  EXPECT_NEAR(report.ranks.rows[7].clock_offset_us -
                  report.ranks.rows[0].clock_offset_us,
              49'000, 0.01);
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_NEAR(report.ranks.rows[r].waiting_ms, truth.ranks.rows[r].waiting_ms,
                0.01);
  }
}

TEST(RanksTest, OrderOfTheFilesChangesNothing) {
  Job job;
  job.late = &Changing;
  std::vector<RankDigest> ranks = Digests(job);
  const Report forward = AnalyzeRanks(ranks);
  std::ranges::reverse(ranks);
  const Report backward = AnalyzeRanks(ranks);
  ASSERT_EQ(forward.ranks.rows.size(), backward.ranks.rows.size());
  for (size_t r = 0; r < 8; ++r) {
    EXPECT_EQ(forward.ranks.rows[r].rank, backward.ranks.rows[r].rank);
    EXPECT_NEAR(forward.ranks.rows[r].waiting_ms,
                backward.ranks.rows[r].waiting_ms, 1e-6);
  }
}

TEST(RanksTest, IgnoresWaitsThatComputationCovers) {
  Job job;
  job.late = &Changing;
  job.covered = true;
  const Report report = Of(job);
  EXPECT_TRUE(IsClean(report, "imbalanced-load"));
  EXPECT_NEAR(report.ranks.waiting_ms, 0, 1e-6);
}

TEST(RanksTest, TwoRanksNeedOneToBeNearlyAlwaysLast) {
  Job job;
  job.ranks = 2;
  job.late = [](int rank, int, int) { return rank == 1 ? 10'000'000 : 0; };
  job.longer_rank = 1;
  EXPECT_NE(Find(Of(job), "straggler-rank"), nullptr);
  job.late = [](int rank, int step, int) {
    return rank == (step < 3 ? 0 : 1) ? 10'000'000 : 0;
  };
  const Report report = Of(job);
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
  EXPECT_NE(Find(report, "imbalanced-load"), nullptr);
}

// Returns the report on ranks whose steps vary so that their means are off by
// `noise_ms`.
Report WithNoise(const Job& job, double noise_ms) {
  std::vector<RankDigest> ranks = Digests(job);
  for (RankDigest& rank : ranks) {
    rank.noise_ms = rank.host_noise_ms = noise_ms;
  }
  return AnalyzeRanks(ranks);
}

// Rank 1 is late at the first collective of each step by the time it computes
// longer. Which rank is last at the second collective is chance.
Job LateAtTheFirst(int64_t late_ns) {
  Job job{.ranks = 2, .longer_rank = 1, .longer_ns = 20'000'000};
  job.late = [late_ns](int rank, int, int collective) {
    return rank == (collective == 0 ? 1 : 0)
               ? collective == 0 ? late_ns : int64_t{4'000'000}
               : 0;
  };
  return job;
}

TEST(RanksTest, OfTwoRanksTheOneWithLongerWorkIsTheStraggler) {
  const Report report = Of(LateAtTheFirst(20'000'000));
  const Finding* finding = Find(report, "straggler-rank");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->where.substr(0, 6), "rank 1");
  EXPECT_NE(finding->evidence.find("computing"), std::string::npos)
      << finding->evidence;
  EXPECT_TRUE(IsClean(report, "imbalanced-load"));
  // The same without longer work: no rank is slow.
  Job equal = LateAtTheFirst(20'000'000);
  equal.longer_rank = -1;
  EXPECT_TRUE(IsClean(Of(equal), "straggler-rank"));
  EXPECT_NE(Find(Of(equal), "imbalanced-load"), nullptr);
  // Rank 1 causes 5 of 9 ms, and 7 of 11 ms; the threshold is 60 %.
  EXPECT_TRUE(IsClean(Of(LateAtTheFirst(5'000'000)), "straggler-rank"));
  EXPECT_NE(Find(Of(LateAtTheFirst(7'000'000)), "straggler-rank"), nullptr);
  // Means that are off by 20 ms cannot prove 20 ms.
  EXPECT_TRUE(
      IsClean(WithNoise(LateAtTheFirst(20'000'000), 20), "straggler-rank"));
}

TEST(RanksTest, TimeWithoutACoreMakesNoStraggler) {
  std::vector<RankDigest> ranks = Digests(LateAtTheFirst(20'000'000));
  for (RankDigest& rank : ranks) {
    auto& split = rank.report.time_split_ms;
    split["contended"] = std::exchange(split["compute"], 10.0);
    rank.report.has_gpu = false;
  }
  const Report report = AnalyzeRanks(ranks);
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
  const Finding* finding = Find(report, "imbalanced-load");
  ASSERT_NE(finding, nullptr);
  // That finding names the late rank's cause.
  EXPECT_NE(finding->evidence.find("Rank 1 spends"), std::string::npos)
      << finding->evidence;
}

TEST(RanksTest, LongerWorkBelowTheContentionMakesNoStraggler) {
  Job job{.ranks = 2, .longer_rank = 1, .longer_ns = 10'000'000};
  job.late = [](int rank, int, int) { return rank * 10'000'000; };
  std::vector<RankDigest> ranks = Digests(job);
  for (RankDigest& rank : ranks) {
    rank.report.has_gpu = false;
    rank.report.time_split_ms["contended"] = 9;
  }
  EXPECT_NE(Find(AnalyzeRanks(ranks), "straggler-rank"), nullptr);
  // Which of the two ranks lost more time is chance.
  ranks[0].report.time_split_ms["contended"] = 11;
  EXPECT_TRUE(IsClean(AnalyzeRanks(ranks), "straggler-rank"));
}

// Hosts that do not wait for each other drift apart, and the later one stays
// late without being slow.
TEST(RanksTest, ALateRankWithoutLongerWorkIsNoStraggler) {
  Job job;
  job.ranks = 2;
  job.late = [](int rank, int, int) { return rank == 1 ? 10'000'000 : 0; };
  const Report report = Of(job);
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
  EXPECT_TRUE(IsClean(report, "imbalanced-load"));
}

TEST(RanksTest, LongerWorkWithinTheNoiseProvesNoStraggler) {
  Job job{.ranks = 2, .longer_rank = 1, .longer_ns = 3'000'000};
  job.late = [](int rank, int, int) { return rank * 3'000'000; };
  EXPECT_NE(Find(WithNoise(job, 1), "straggler-rank"), nullptr);
  EXPECT_TRUE(IsClean(WithNoise(job, 3), "straggler-rank"));
  // A tenth of the step is not chance, however much the steps vary.
  job.longer_ns = 10'000'000;
  EXPECT_NE(Find(WithNoise(job, 50), "straggler-rank"), nullptr);
}

TEST(RanksTest, EqualRanksThatDriftedApartAreNoImbalance) {
  // Rank 1 is last in five of six steps.
  const auto drifting = [](int64_t ns) {
    Job job{.ranks = 2};
    job.late = [ns](int rank, int step, int) {
      return rank == (step == 0 ? 0 : 1) ? ns : 0;
    };
    return job;
  };
  EXPECT_NE(Find(WithNoise(drifting(4'000'000), 0.1), "imbalanced-load"),
            nullptr);
  EXPECT_TRUE(IsClean(WithNoise(drifting(4'000'000), 4), "imbalanced-load"));
  EXPECT_NE(Find(WithNoise(drifting(14'000'000), 50), "imbalanced-load"),
            nullptr);
}

TEST(RanksTest, LeavesOutStepsWhereARankMissesACollective) {
  Job job;
  job.late = &Changing;
  job.skip_first_of_rank = 2;
  const Report report = Of(job);
  EXPECT_EQ(report.ranks.unmatched, 2);
  EXPECT_EQ(report.ranks.collectives, 2 * (kSteps - 1));
}

TEST(RanksTest, DoesNotCompareDifferentRuns) {
  Job job;
  std::vector<RankDigest> ranks = Digests(job);
  ranks[1].report.run.rank = 0;
  EXPECT_NE(AnalyzeRanks(ranks).ranks.why_not.find("rank 0"),
            std::string::npos);
  ranks = Digests(job);
  ranks[1].report.run.rank = -1;
  ranks[1].report.run.source = "b.json";
  EXPECT_NE(AnalyzeRanks(ranks).ranks.why_not.find("b.json"),
            std::string::npos);
  ranks = Digests(job);
  ranks[5].report.run.world_size = 16;
  EXPECT_NE(AnalyzeRanks(ranks).ranks.why_not, "");
}

// Two ranks of a job, with the second one changed.
RankComparison With(const std::function<void(RankDigest& rank)>& change) {
  std::vector<RankDigest> ranks = Digests({.ranks = 2});
  change(ranks[1]);
  return AnalyzeRanks(ranks).ranks;
}

TEST(RanksTest, TellsWhyRanksHaveNoCollectiveInCommon) {
  const RankComparison other_job = With([](RankDigest& rank) {
    // Each step has one collective in place of two.
    std::erase_if(rank.collectives,
                  [](const RankCollective& one) { return one.ordinal > 0; });
  });
  EXPECT_TRUE(other_job.different_jobs);
  EXPECT_THAT(other_job.why_not,
              HasSubstr("these look like different jobs: no collective of one "
                        "is in the other; give one job per folder"));
  const RankComparison later = With([](RankDigest& rank) {
    for (RankCollective& one : rank.collectives) one.step += 100;
  });
  EXPECT_FALSE(later.different_jobs);
  EXPECT_EQ(later.why_not, "the ranks were recorded in different steps");
  const RankComparison none =
      With([](RankDigest& rank) { rank.collectives.clear(); });
  EXPECT_FALSE(none.different_jobs);
  EXPECT_EQ(none.why_not, "no collective was recorded on two ranks");
}

// Stages of a pipeline that are replicated have groups of their own.
TEST(RanksTest, RanksOfDisjointGroupsMayBeOfOneJob) {
  std::vector<RankDigest> ranks = Digests({.ranks = 2});
  for (size_t r : {0u, 1u}) {
    for (RankCollective& one : ranks[r].collectives) one.group = 10 + r;
    ranks[r].groups = {{.group = 10 + r,
                        .members = r == 0 ? "[0, 2]" : "[1, 3]",
                        .size = 2,
                        .kind = "all-reduce"}};
    ranks[r].report.run.world_size = 4;
  }
  EXPECT_EQ(AnalyzeRanks(ranks).ranks.why_not,
            "the ranks have no group in common");
  ranks[1].groups[0].members = "[1, 0]";
  EXPECT_TRUE(AnalyzeRanks(ranks).ranks.different_jobs);
}

TEST(RanksTest, OneRankCannotTell) {
  const Report report = Analyze(RankTrace(Job(), 0));
  EXPECT_NE(WhySkipped(report, "straggler-rank").find("one rank of 8"),
            std::string::npos)
      << WhySkipped(report, "straggler-rank");
  EXPECT_NE(WhySkipped(report, "imbalanced-load").find("all ranks"),
            std::string::npos);
}

TEST(RanksTest, ASingleProcessHasNothingToCompare) {
  const Report report = Analyze(TraceFromText(R"(
    run world_size=1
    step 0..1000000 thread=0
    op 0..900000 thread=0 aten::mm
  )"));
  EXPECT_TRUE(IsClean(report, "straggler-rank"));
}

TEST(RanksTest, AFindingOfFewRanksIsANote) {
  Job job;
  job.loader_of_rank_3_ns = 20'000'000;
  const Report report = Of(job);
  const Finding* finding = Find(report, "sync-data-loading");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, FindingSeverity::kNote);
  EXPECT_NE(finding->evidence.find("1 of 8 ranks (3)"), std::string::npos);
}

TEST(RanksTest, NamesTheRanksOfAFindingInOrder) {
  Finding finding;
  finding.id = "launch-bound";
  finding.gain_kind = GainKind::kBound;
  finding.severity = FindingSeverity::kHigh;
  std::vector<RankDigest> ranks = Digests({});
  // The order of the gains is not that of the numbers.
  for (size_t rank : {1, 2, 3, 5, 6, 7}) {
    finding.gain.expected_ms = 10.0 + static_cast<double>((rank * 5) % 8);
    ranks[rank].report.findings = {finding};
  }
  const Report report = AnalyzeRanks(ranks);
  ASSERT_NE(Find(report, "launch-bound"), nullptr);
  EXPECT_THAT(Find(report, "launch-bound")->evidence,
              HasSubstr("Found on 6 of 8 ranks (1, 2, 3, 5, ...)."));
  ranks = Digests({.ranks = 2});
  for (RankDigest& rank : ranks) rank.report.findings = {finding};
  const Report two = AnalyzeRanks(ranks);
  ASSERT_NE(Find(two, "launch-bound"), nullptr);
  EXPECT_THAT(Find(two, "launch-bound")->evidence,
              HasSubstr("Found on both ranks; the figures are those of rank"));
}

TEST(RanksTest, AStepThatOneRankLeavesOutIsToldOfTheRun) {
  std::vector<RankDigest> ranks = Digests({.ranks = 2});
  ASSERT_EQ(ranks[1].report.step_times.size(), size_t{kSteps});
  ranks[1].report.step_times[2].kind = "checkpoint";
  ranks[1].report.step_times[2].ms += 30;
  ranks[1].report.steps.steady -= 1;
  const Report report = AnalyzeRanks(ranks);
  ASSERT_EQ(report.step_times.size(), size_t{kSteps});
  EXPECT_EQ(report.step_times[1].kind, "steady");
  EXPECT_NEAR(report.step_times[1].ms, 100, 1);
  EXPECT_EQ(report.step_times[2].kind, "checkpoint");
  EXPECT_NEAR(report.step_times[2].ms, 115, 1);
  EXPECT_EQ(report.steps.steady, kSteps - 1);
  EXPECT_NE(ToText(report, {}).find("with a checkpoint"), std::string::npos)
      << ToText(report, {});
  // Another rank leaves out another step.
  ranks[0].report.step_times[4].kind = "slow";
  ranks[0].report.steps.steady -= 1;
  EXPECT_EQ(AnalyzeRanks(ranks).steps.steady, kSteps - 2);
}

TEST(RanksTest, TimesAreMeansOverTheRanks) {
  Job job;
  job.late = &Changing;
  const Report report = Of(job);
  double sum = 0;
  for (const auto& [cause, ms] : report.time_split_ms) sum += ms;
  EXPECT_NEAR(sum, report.steps.mean_ms, 1e-6);
  EXPECT_NE(ToText(report, {}).find("ranks, ms per step"), std::string::npos);
  EXPECT_NE(ToJson(report).find("\"clock_residual_us\""), std::string::npos);
}

TEST(ByHostTest, AMachinesHostTimeNeedsThatOfEachRank) {
  RankComparison ranks;
  for (const auto& [host, host_ms] :
       {std::pair{"a", 40.0}, {"a", 60.0}, {"b", 30.0}, {"b", -1.0}}) {
    RankRow row;
    row.rank = static_cast<int32_t>(ranks.rows.size());
    row.host = host;
    row.host_ms = host_ms;
    ranks.rows.push_back(row);
  }
  const RankComparison machines = ByHost(ranks);
  ASSERT_EQ(machines.rows.size(), 2u);
  EXPECT_DOUBLE_EQ(machines.rows[0].host_ms, 50);
  EXPECT_EQ(machines.rows[1].host_ms, -1);
}

std::string LossesOf(const std::map<int32_t, std::string>& missing) {
  Report report;
  NameMissingRanks(missing, report);
  std::string text;
  for (const Loss& loss : report.losses) {
    EXPECT_EQ(loss.name, "missing-rank");
    text += std::to_string(loss.count) + ": " + loss.detail + "\n";
  }
  return text;
}

TEST(MissingRanksTest, OneLossForAllOfTheSameReason) {
  EXPECT_EQ(LossesOf({}), "");
  EXPECT_EQ(LossesOf({{1, "does not record"},
                      {2, "sent nothing"},
                      {5, "does not record"},
                      {9, "does not record"}}),
            "3: ranks 1, 5 and 9 do not record\n1: rank 2 sent nothing\n");
  EXPECT_EQ(LossesOf({{1, "has no trace"}}), "1: rank 1 has no trace\n");
  EXPECT_EQ(LossesOf({{1, "has no trace"}, {2, "has no trace"}}),
            "2: ranks 1 and 2 have no trace\n");
}

TEST(MissingRanksTest, ThousandsFitOnAScreen) {
  std::map<int32_t, std::string> alike, different;
  for (int32_t rank = 0; rank < 4096; ++rank) {
    alike[rank] = "has no trace";
    different[rank] = "is damaged at byte " + std::to_string(10'000 + rank);
  }
  EXPECT_EQ(LossesOf(alike),
            "4096: ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 "
            "and 4080 more have no trace\n");
  Report report;
  NameMissingRanks(different, report);
  ASSERT_EQ(report.losses.size(), 21u);
  EXPECT_EQ(report.losses[0].detail, "rank 0 is damaged at byte 10000");
  EXPECT_EQ(report.losses[20].count, 4076);
  EXPECT_TRUE(report.losses[20].detail.starts_with("ranks 20, 21, 22,"));
}

}  // namespace
}  // namespace stepscope::ranks_test
