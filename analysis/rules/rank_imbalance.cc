// Do ranks wait for each other?
// Source: PyTorch Performance Tuning Guide, distributed training: the slowest
// worker sets the pace; balance the load, bucket by length. A modified z-score
// above 3.5 is the usual bound for outliers (XProf's too).
#include <stepscope/kernel_class.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "context/rule.h"
#include "ops/by_name.h"
#include "ranks/late_ranks.h"
#include "ranks/rank_comparison.h"
#include "steps/steps.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace rank_imbalance_rules {
namespace {

constexpr double kWaitShare = 0.03;
constexpr double kLateShare = 0.01;
constexpr double kLastShare = 0.60;
// The least share of a slow rank's lateness that its longer work must explain.
constexpr double kLateByWork = 0.5;
constexpr double kOutlierScore = 3.5;
// With fewer ranks a z-score means nothing. The rank must then be last nearly
// always, and at least a few times.
constexpr size_t kRanksForScore = 4;
constexpr double kLastOfFewShare = 0.90;
constexpr int64_t kLastOfFewTimes = 5;
// A rank that only drifted is last in at least this share of the collectives.
constexpr double kLastOfDrifted = 0.80;
// Noise values are two standard errors. Three are required here, because many
// pairs of ranks are compared.
constexpr double kNoises = 1.5;
// Shares of the step. A larger difference is not chance, however much the steps
// vary.
constexpr double kMostNoise = 0.05;
constexpr double kMostDrift = 0.10;
constexpr double kDrifts = 3;  // times the mean drift
// Waits must exceed the residual error of the clock alignment by this factor.
constexpr double kResiduals = 3;

// True if the trace says that the rank belongs to a job of several ranks.
bool HasOtherRanks(const AnalysisContext& m) {
  const RunInfo& run = m.trace.run();
  if (run.world_size >= 0) return run.world_size > 1;
  if (run.rank > 0) return true;
  const auto groups = m.trace.communications();
  if (std::ranges::any_of(groups, [](const Communication& row) {
        return row.group_size > 1;
      })) {
    return true;
  }
  const auto kernels = m.trace.kernels();
  ByName is_collective(m.trace, &IsCollectiveKernel);
  return !m.collectives.empty() ||
         std::ranges::any_of(kernels, [&](const Kernel& kernel) {
           return is_collective(kernel.name);
         });
}

Verdict OneRankOnly(const AnalysisContext& m) {
  if (!HasOtherRanks(m)) return Clean();
  const int32_t ranks = m.trace.run().world_size;
  return SkipElsewhere(
      "one rank of " +
      (ranks > 0 ? std::to_string(ranks) : std::string("several")) +
      "; needs the traces of all ranks: stepscope analyze FOLDER");
}

double LastShareOf(const RankComparison& ranks, const RankRow& row) {
  return ranks.skewed > 0 ? static_cast<double>(row.last) / ranks.skewed : 0;
}

const RankRow& MostOftenLast(const RankComparison& ranks) {
  return *std::ranges::max_element(ranks.rows, {}, &RankRow::last);
}

// Returns the share of all waiting that is for this rank.
double WaitedForShare(const RankComparison& ranks, const RankRow& row) {
  double all = 0, for_row = 0;
  for (const RankWait& wait : ranks.waits) {
    all += wait.ms;
    if (wait.waits_for == row.rank) for_row += wait.ms;
  }
  return all > 0 ? for_row / all : 0;
}

const RankRow& MostWaitedFor(const RankComparison& ranks) {
  return *std::ranges::max_element(ranks.rows, {}, [&](const RankRow& row) {
    return WaitedForShare(ranks, row);
  });
}

double WaitOfOthers(const RankComparison& ranks, const RankRow& straggler) {
  double sum = 0;
  for (const RankRow& row : ranks.rows) {
    if (&row != &straggler) sum += row.waiting_ms;
  }
  return sum / static_cast<double>(ranks.rows.size() - 1);
}

// Returns the time in ms per step in which the rank's device works on anything
// but collectives.
double DeviceMs(const RankRow& row) {
  double ms = 0;
  for (const char* key : {"compute", "copy"}) {
    const auto it = row.time_split_ms.find(key);
    if (it != row.time_split_ms.end()) ms += it->second;
  }
  return ms;
}

// True if the rank's host, loader or device works longer than those of the
// others, by more than equal ranks may differ by chance. Needed because ranks
// whose hosts do not wait for each other drift apart, and stay apart, although
// none of them is slow.
bool WorksLonger(const RankComparison& ranks, const RankRow& straggler) {
  std::vector<double> hosts, loaders, devices, noises;
  for (const RankRow& row : ranks.rows) {
    if (!AreAlike(row, straggler)) continue;
    if (row.host_ms < 0 || straggler.host_ms < 0) return true;  // unknown
    hosts.push_back(row.host_ms);
    loaders.push_back(row.loading_ms);
    devices.push_back(DeviceMs(row));
    noises.push_back(row.host_noise_ms);
  }
  if (hosts.empty()) return false;
  // Lateness adds up over the collectives of a step. Work does not.
  const double late_ms =
      std::min(straggler.late_ms, WaitOfOthers(ranks, straggler));
  const double least = std::max(
      {kLateShare * ranks.step_ms, kLateByWork * late_ms,
       std::min(kNoises * std::hypot(straggler.host_noise_ms, Median(noises)),
                kMostNoise * ranks.step_ms)});
  return straggler.host_ms - Median(hosts) >= least ||
         straggler.loading_ms - Median(loaders) >= least ||
         DeviceMs(straggler) - Median(devices) >= least;
}

// For runs of few ranks: returns the rank that the others wait for most, if its
// longer work explains the waits. It need not be last nearly always, because
// after a long wait at the first collective of a step, chance decides which
// rank is last at the others. Time lost to other programs on its cores is not
// its own work; contended-cores reports it.
const RankRow* LateByItsWork(const RankComparison& ranks) {
  const RankRow& row = MostWaitedFor(ranks);
  if (WaitedForShare(ranks, row) < kLastShare || row.last < kLastOfFewTimes ||
      row.late_ms < kLateShare * ranks.step_ms) {
    return nullptr;
  }
  const auto [cause, more] = CauseOf(ranks, row);
  double noise_ms = row.host_noise_ms;
  for (const RankRow& other : ranks.rows) {
    noise_ms = std::max(noise_ms, other.host_noise_ms);
  }
  // The noise of the difference of two means, each with this noise.
  const double late_ms = std::min(row.late_ms, WaitOfOthers(ranks, row));
  const double least =
      std::max(kLateByWork * late_ms, kNoises * std::numbers::sqrt2 * noise_ms);
  return !cause.empty() && more >= least && WorksLonger(ranks, row) ? &row
                                                                    : nullptr;
}

// Returns the rank that is late as if it were slow; nullptr if there is none.
const RankRow* LateRank(const RankComparison& ranks) {
  const std::vector<double> scores = LatenessScores(ranks);
  const RankRow& row = MostOftenLast(ranks);
  const auto at = static_cast<size_t>(&row - ranks.rows.data());
  const double last = LastShareOf(ranks, row);
  if (ranks.rows.size() < kRanksForScore) {
    return row.late_ms >= kLateShare * ranks.step_ms &&
                   last >= kLastOfFewShare && row.last >= kLastOfFewTimes
               ? &row
               : LateByItsWork(ranks);
  }
  if (row.late_ms < kLateShare * ranks.step_ms) return nullptr;
  return last >= kLastShare && scores[at] > kOutlierScore ? &row : nullptr;
}

// True if other programs on the ranks' cores may cause the rank's additional
// time. In a run of few ranks, which rank they delay is chance.
bool MayBeContention(const RankComparison& ranks, const RankRow& row) {
  const auto [cause, more_ms] = CauseOf(ranks, row);
  if (cause == "contended") return ranks.rows.size() < kRanksForScore;
  double lost_ms = 0;
  for (const RankRow& other : ranks.rows) {
    const auto lost = other.time_split_ms.find("contended");
    if (lost != other.time_split_ms.end()) {
      lost_ms = std::max(lost_ms, lost->second);
    }
  }
  return lost_ms > 0 && more_ms <= lost_ms;
}

// Returns the single rank that the others wait for; nullptr if there is none.
const RankRow* Straggler(const RankComparison& ranks) {
  const RankRow* const late = LateRank(ranks);
  return late != nullptr && MayBeContention(ranks, *late) ? nullptr : late;
}

std::string Clocks(const RankComparison& ranks) {
  return " (clocks aligned by " + Count(ranks.collectives, "collective") +
         ", to within " + Number(ranks.clock_residual_us) + " us)";
}

// Checks for a single machine whose ranks the others wait for.
Verdict CheckHosts(const RankComparison& ranks) {
  const RankComparison machines = ByHost(ranks);
  if (machines.rows.empty()) return Clean();
  const RankRow* slow = LateRank(machines);
  if (slow == nullptr) return Clean();
  const double wait = WaitOfOthers(machines, *slow);
  if (wait * 1e3 < kResiduals * ranks.clock_residual_us ||
      !WorksLonger(machines, *slow)) {
    return Clean();
  }
  const auto [cause, more] = CauseOf(machines, *slow);
  if (cause.empty() && machines.rows.size() < kRanksForScore) return Clean();
  std::vector<std::string> names;
  for (const RankRow& row : ranks.rows) {
    if (row.host == slow->host) names.push_back(std::to_string(row.rank));
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence = "Of the " + Count(ranks.skewed, "collective") +
                     " with skewed arrivals, a rank of machine " + slow->host +
                     " (ranks " + ListedWithAnd(names) + ") arrives last at " +
                     std::to_string(slow->last) +
                     "; the ranks of the other machines wait " +
                     Milliseconds(wait) + " per step" + Clocks(ranks) + ".";
  if (!cause.empty()) {
    finding.evidence += " Its ranks spend " + Milliseconds(more) +
                        " per step more than the others on " +
                        CauseInWords(cause, true) + ".";
  }
  finding.where = "machine " + slow->host;
  finding.assumption =
      "at best: its ranks arrive with those of the other machines";
  finding.fix_cpp = finding.fix_python =
      "all late ranks are on this machine, so look there first: " +
      FixOf(cause, machines, *slow);
  finding.wrong_if =
      "ranks of another machine are last in a longer recording: then the load "
      "is imbalanced, and no machine is slow";
  return FireBound(std::move(finding), std::max(wait, more) * 1e6);
}

// True if the other ranks of its machine are also late.
bool ItsMachineIsLate(const RankComparison& ranks, const RankRow& row) {
  std::vector<double> late;
  for (const RankRow& other : ranks.rows) {
    if (other.rank != row.rank && other.host == row.host) {
      late.push_back(other.late_ms);
    }
  }
  return !late.empty() && Median(late) >= kLateByWork * row.late_ms;
}

// Adds what the straggler costs: from the replay of all ranks together, or
// otherwise at most the time that the others wait for it.
Found Priced(Finding finding, const RankComparison& ranks, const RankRow& row,
             double bound_ms) {
  Found found{.finding = std::move(finding), .bound_ns = bound_ms * 1e6};
  const MendedRank& mended = ranks.mended;
  if (mended.rank != row.rank) return found;
  found.finding.gain = {.expected_ms = mended.before_ms - mended.after_ms,
                        .low_ms = mended.before_ms - mended.high_ms,
                        .high_ms = mended.before_ms - mended.low_ms};
  found.finding.assumption =
      mended.balanced ? "all ranks replayed together, each with the mean of "
                        "their work, as with balanced batches"
                      : "all ranks replayed together, with this one as fast "
                        "as the median of the others";
  if (mended.next_rank >= 0 && mended.next_rank != row.rank) {
    found.finding.assumption += "; rank " + std::to_string(mended.next_rank) +
                                " is then waited for most";
  }
  return found;
}

Verdict CheckStraggler(const RankComparison& ranks) {
  const RankRow* row = Straggler(ranks);
  if (row == nullptr || ItsMachineIsLate(ranks, *row)) {
    Verdict machine = CheckHosts(ranks);
    if (row == nullptr || !machine.found.empty()) return machine;
  }
  const double wait = WaitOfOthers(ranks, *row);
  if (wait * 1e3 < kResiduals * ranks.clock_residual_us) return Clean();
  if (!WorksLonger(ranks, *row)) return Clean();
  const auto [cause, more] = CauseOf(ranks, *row);
  // Two ranks that never wait for each other drift apart and stay apart. The
  // later rank is slow only if it spends more time on something.
  if (cause.empty() && ranks.rows.size() < kRanksForScore) return Clean();
  const std::string name = "rank " + std::to_string(row->rank);
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "R" + name.substr(1) + " arrives last at " + std::to_string(row->last) +
      " of the " + Count(ranks.skewed, "collective") +
      " with skewed arrivals, " + Milliseconds(row->late_ms) +
      " per step after the median rank; the other ranks wait " +
      Milliseconds(wait) + " per step for it" + Clocks(ranks) + ".";
  if (!cause.empty()) {
    finding.evidence += " It spends " + Milliseconds(more) +
                        " per step more than the others on " +
                        CauseInWords(cause, true) + ".";
    if (cause == "compute") finding.evidence += LongerInWords(ranks, *row);
  }
  finding.where = name + (row->source.empty() ? "" : ", " + row->source);
  finding.assumption = "at best: " + name + " arrives with the median rank";
  finding.fix_cpp = finding.fix_python = FixOf(cause, ranks, *row);
  // The waits of the others do not show time that the straggler loses after its
  // last collective.
  double bound_ms = std::max({wait, row->late_ms, more});
  if (HasLargerBatches(ranks, *row)) {  // the others get its surplus
    const auto like = static_cast<double>(std::ranges::count_if(
        ranks.rows,
        [&](const RankRow& other) { return AreAlike(other, *row); }));
    bound_ms *= like / (like + 1);
    finding.assumption = "at best: all ranks have the mean of their work";
  }
  finding.wrong_if =
      "another rank is last in a longer recording: then the load is "
      "imbalanced, and no rank is slow";
  return Fire(Priced(std::move(finding), ranks, *row, bound_ms));
}

// True for equal ranks whose hosts do not wait for each other. Chance
// differences between their steps add up over the recording, and the rank that
// falls behind stays last.
bool OnlyDrifted(const RankComparison& ranks) {
  if (ranks.rows.size() >= kRanksForScore || ranks.steps_of_other_shapes > 0 ||
      LastShareOf(ranks, MostOftenLast(ranks)) < kLastOfDrifted) {
    return false;
  }
  std::vector<double> noises;
  for (const RankRow& row : ranks.rows) noises.push_back(row.noise_ms);
  const double steps = static_cast<double>(std::max<int64_t>(ranks.steps, 1));
  // If steps have standard deviation sd, two random walks wait 0.38 sd
  // sqrt(steps) for each other on average. The noise is 2 sd / sqrt(steps).
  const double drift_ms = kDrifts * 0.38 * Median(noises) / 2 * steps;
  return ranks.waiting_ms <= std::min(drift_ms, kMostDrift * ranks.step_ms);
}

// Adds that the ranks did not begin the only recorded step together.
std::string StartsInWords(const RankComparison& ranks) {
  if (ranks.start_wait_ms < kLateShare * ranks.step_ms) return "";
  return " They begin the only recorded step up to " +
         Milliseconds(ranks.starts_apart_ms) + " apart, which alone explains " +
         Milliseconds(ranks.start_wait_ms) +
         " of the waiting. The gain leaves that out, because ranks that end a "
         "step together begin the next one together. Record several steps.";
}

// `late`: the rank that the others wait for most.
void SayHowToBalance(const RankComparison& ranks, const RankRow& late,
                     Finding& finding) {
  const std::string cause = CauseOf(ranks, late).first;
  if (ranks.steps_of_other_shapes <= 0 &&
      (cause == "host_code" || cause == "gc")) {
    finding.fix_cpp =
        "the program stops on one rank at a "
        "time: see what runs between its ops, and what else uses its cores";
    finding.fix_python =
        "the program stops on one rank at a "
        "time. Python's garbage collector does that: gc.freeze() and "
        "gc.disable() after the set-up, then gc.collect() every N steps, in "
        "the same step on all ranks. Otherwise see what runs between its ops, "
        "and what else uses its cores";
    return;
  }
  finding.fix_cpp =
      "give all ranks equal work per step: sort samples by length into buckets "
      "and distribute each bucket over the ranks, or fill batches by token "
      "count";
  finding.fix_python =
      "a batch sampler that distributes buckets of equal length, or batches of "
      "equal token count; for sharded embeddings, a sharding plan by measured "
      "cost";
}

Verdict CheckImbalance(const RankComparison& ranks) {
  const double waiting_ms = ranks.waiting_ms - ranks.start_wait_ms;
  if (Straggler(ranks) != nullptr || !CheckHosts(ranks).found.empty() ||
      OnlyDrifted(ranks) ||
      waiting_ms -
              std::min(ranks.waiting_noise_ms, kMostNoise * ranks.step_ms) <
          kWaitShare * ranks.step_ms ||
      waiting_ms * 1e3 < kResiduals * ranks.clock_residual_us) {
    return Clean();
  }
  const auto by_wait = [](const RankRow& row) { return row.waiting_ms; };
  const auto [least, most] =
      std::ranges::minmax_element(ranks.rows, {}, by_wait);
  std::string last;
  std::vector<const RankRow*> order;
  for (const RankRow& row : ranks.rows) {
    if (row.last > 0) order.push_back(&row);
  }
  std::ranges::stable_sort(order, {},
                           [](const RankRow* row) { return -row->last; });
  for (size_t i = 0; i < std::min<size_t>(order.size(), 3); ++i) {
    last += (i > 0 ? ", " : "") + std::string("rank ") +
            std::to_string(order[i]->rank) + " at " +
            std::to_string(order[i]->last);
  }
  Finding finding;
  finding.confidence = Confidence::kStrong;
  finding.evidence =
      "Ranks wait " + Milliseconds(ranks.waiting_ms) + " per step (" +
      Percent(ranks.waiting_ms / ranks.step_ms) +
      ") for the last rank to arrive at collectives: from " +
      Milliseconds(least->waiting_ms) + " (rank " +
      std::to_string(least->rank) + ") to " + Milliseconds(most->waiting_ms) +
      " (rank " + std::to_string(most->rank) + "). Most often last, of " +
      Count(ranks.skewed, "collective") + " with skewed arrivals: " + last +
      Clocks(ranks) + "." + StartsInWords(ranks);
  const RankRow& late = MostWaitedFor(ranks);
  if (const auto [cause, more] = CauseOf(ranks, late); !cause.empty()) {
    finding.evidence +=
        " Rank " + std::to_string(late.rank) + " spends " + Milliseconds(more) +
        " per step more than the others on " + CauseInWords(cause, true) + ".";
  }
  if (ranks.steps_of_other_shapes > 0) {
    finding.evidence += " Input shapes differ between the ranks";
    if (ranks.steps_of_other_shapes < ranks.steps) {
      finding.evidence += " in " + std::to_string(ranks.steps_of_other_shapes) +
                          " of " + Count(ranks.steps, "step");
    }
    finding.evidence += ".";
  }
  finding.assumption = "at best: all ranks arrive together";
  finding.wrong_if =
      "one rank is last at nearly all collectives of a longer recording: then "
      "that rank is slow";
  SayHowToBalance(ranks, late, finding);
  return FireBound(
      std::move(finding),
      (std::max(ranks.waiting_ms, ranks.imbalance_ms) - ranks.start_wait_ms) *
          1e6);
}

constexpr Rule kRules[] = {
    {.id = "imbalanced-load",
     .question = "Do ranks wait for each other because their work differs?",
     .needs_steps = false,
     .needs = {},
     .causes = {Cause::kCommunication, Cause::kSync, Cause::kBlockingCopy},
     .check = &OneRankOnly,
     .reference = "PyTorch Performance Tuning Guide, distributed training: "
                  "load-balance the workload",
     .detect =
         "ranks wait at least 3 % of the step for the last one to arrive at "
         "collectives (the mean less two standard errors, which count up to 5 "
         "% of the step), and no single rank causes it (straggler-rank)",
     .avoid = "the waits are below three times the residual error of the clock "
              "alignment, computation covers them, or a few equal ranks "
              "drifted apart by chance. Clocks are aligned by the ends of "
              "collectives, not by wall clock, and arrivals within 0.1 % of "
              "the step count as simultaneous",
     .fix_cpp =
         "batches of equal work: buckets by length, or batches by token count",
     .fix_python =
         "a batch sampler with buckets; for embeddings, another sharding plan",
     .check_ranks = &CheckImbalance},
    {.id = "straggler-rank",
     .question = "Does one slow rank delay the others?",
     .needs_steps = false,
     .needs = {},
     .causes = {Cause::kCommunication, Cause::kSync, Cause::kBlockingCopy},
     .check = &OneRankOnly,
     .reference = "PyTorch Performance Tuning Guide, distributed training: the "
                  "slowest worker sets the pace",
     .detect =
         "one rank is at least 1 % of the step later than the median rank, "
         "with a modified z-score above 3.5 (XProf's bound), and last in at "
         "least 60 % of the collectives with skewed arrivals (with fewer than "
         "four ranks: last in 90 % of them and at least five times; or 60 % of "
         "all waiting is for it, and its work is longer than that of the "
         "others by more than chance and by at least half of its lateness)",
     .avoid = "the late rank's host, loader and device do not work longer than "
              "those of the others. One of them must exceed the others by 1 % "
              "of the step, by half of the rank's lateness, and by the chance "
              "difference of two means of such steps (three standard errors, "
              "which count up to 5 % of the step): with jitter alone some rank "
              "is always last, and ranks whose hosts drifted apart stay apart. "
              "Nor does it fire if other programs took as much time from any "
              "rank (contended-cores)",
     .fix_cpp = "depends on the cause: the report names what that rank spends "
                "more time on",
     .fix_python = "depends on the cause: the report names what that rank "
                   "spends more time on",
     .check_ranks = &CheckStraggler}};

}  // namespace
}  // namespace rank_imbalance_rules

extern const std::span<const Rule> kRankImbalance =
    rank_imbalance_rules::kRules;

}  // namespace stepscope
