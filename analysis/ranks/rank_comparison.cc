#include "ranks/rank_comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "steps/steps.h"

namespace stepscope {
namespace {

// Arrivals within this share of a step, or within this many clock residuals,
// count as simultaneous: by jitter alone, some rank is always last.
constexpr double kTogetherShare = 0.001;
constexpr double kTogetherResiduals = 3;
// Of a thousand ranks each may wait for each: a million pairs.
constexpr size_t kWaitsListed = 1000;
// Shorter waits for one rank, per step, are left out.
constexpr double kWaitListedMs = 1e-3;

using Key = std::tuple<int64_t, uint64_t, int32_t>;
// (waiting rank, rank it waits for), as indices -> ms
using WaitsByPair = std::map<std::pair<size_t, size_t>, double>;

// One collective on every rank of its group.
struct MatchedCollective {
  // (index of the rank, index in its list of collectives)
  std::vector<std::pair<size_t, size_t>> members;
  int64_t step = 0;
  uint64_t group = 0;
  bool ends_together = false;
};

std::string WhyNotComparable(const std::vector<RankDigest>& ranks) {
  if (ranks.size() < 2) return "there is only one rank";
  std::set<int32_t> seen;
  for (const RankDigest& rank : ranks) {
    const RunInfo& run = rank.report.run;
    if (run.rank < 0) return run.source + " does not name its rank";
    if (!seen.insert(run.rank).second) {
      return "two traces belong to rank " + std::to_string(run.rank);
    }
    if (run.world_size != ranks[0].report.run.world_size) {
      return "the traces come from jobs of different world sizes";
    }
  }
  return "";
}

std::vector<MatchedCollective> Match(const std::vector<RankDigest>& ranks,
                                     RankComparison& comparison) {
  std::map<Key, MatchedCollective> by_key;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t i = 0; i < ranks[r].collectives.size(); ++i) {
      const RankCollective& one = ranks[r].collectives[i];
      MatchedCollective& collective =
          by_key[{one.step, one.group, one.ordinal}];
      collective.members.push_back({r, i});
      collective.step = one.step;
      collective.group = one.group;
      collective.ends_together = one.ends_together;
    }
  }
  // If one rank misses a collective, all later ordinals of that group and step
  // are shifted. Use a group's collectives of a step only if all ranks recorded
  // the same number of them.
  std::map<std::pair<int64_t, uint64_t>, std::map<size_t, int64_t>> counts;
  for (const auto& [key, collective] : by_key) {
    for (const auto& [r, i] : collective.members) {
      ++counts[{std::get<0>(key), std::get<1>(key)}][r];
    }
  }
  std::vector<MatchedCollective> matched;
  for (auto& [key, collective] : by_key) {
    const auto& of_group = counts[{std::get<0>(key), std::get<1>(key)}];
    const int64_t count = of_group.begin()->second;
    const bool alike = std::ranges::all_of(
        of_group, [&](const auto& entry) { return entry.second == count; });
    if (alike && collective.members.size() >= 2) {
      matched.push_back(std::move(collective));
    } else {
      ++comparison.unmatched;
    }
  }
  return matched;
}

// How far each rank's clock is ahead of the median clock, in ns, by the ends of
// collectives. `residual_ns`: the median disagreement after correction.
std::vector<double> ClockOffsets(const std::vector<RankDigest>& ranks,
                                 const std::vector<MatchedCollective>& matched,
                                 double& residual_ns) {
  const bool some_end_together =
      std::ranges::any_of(matched, &MatchedCollective::ends_together);
  std::vector<std::vector<double>> ahead(ranks.size());
  std::vector<double> offsets(ranks.size(), 0);
  // The median end depends on the offsets; a second round corrects for the
  // first.
  for (int round = 0; round < 2; ++round) {
    for (auto& list : ahead) list.clear();
    for (const MatchedCollective& collective : matched) {
      if (some_end_together && !collective.ends_together) continue;
      std::vector<double> ends;
      const int64_t base = ranks[collective.members[0].first]
                               .collectives[collective.members[0].second]
                               .end_ns;
      for (const auto& [r, i] : collective.members) {
        ends.push_back(
            static_cast<double>(ranks[r].collectives[i].end_ns - base) -
            offsets[r]);
      }
      const double middle = Median(ends);
      for (size_t k = 0; k < ends.size(); ++k) {
        ahead[collective.members[k].first].push_back(ends[k] - middle);
      }
    }
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (!ahead[r].empty()) offsets[r] += Median(ahead[r]);
    }
  }
  std::vector<double> left;
  for (const std::vector<double>& list : ahead) {
    if (list.empty()) continue;
    const double middle = Median(list);
    for (double ns : list) left.push_back(std::abs(ns - middle));
  }
  residual_ns = left.empty() ? 0 : Median(left);
  return offsets;
}

void FillRows(const std::vector<RankDigest>& ranks,
              RankComparison& comparison) {
  for (const RankDigest& rank : ranks) {
    const Report& report = rank.report;
    RankRow row;
    row.rank = report.run.rank;
    row.source = report.run.source;
    row.step_ms = report.steps.mean_ms;
    row.noise_ms = rank.noise_ms;
    row.host_noise_ms = rank.host_noise_ms;
    row.host_ms = rank.host_ms;
    const auto data = report.phases_ms.find("data");
    if (data != report.phases_ms.end()) row.loading_ms = data->second;
    row.time_split_ms = report.time_split_ms;
    const auto compute = report.time_split_ms.find("compute");
    if (compute != report.time_split_ms.end()) row.busy_ms = compute->second;
    const auto exposed = report.time_split_ms.find("communication");
    if (exposed != report.time_split_ms.end()) row.exposed_ms = exposed->second;
    comparison.step_ms += row.step_ms / ranks.size();
    comparison.rows.push_back(std::move(row));
    comparison.has_gpu |= report.has_gpu;
  }
}

// Counts the steps in which input shapes differ between ranks.
void CompareShapes(const std::vector<RankDigest>& ranks,
                   RankComparison& comparison) {
  std::map<int64_t, std::pair<size_t, std::set<uint64_t>>> steps;
  for (const RankDigest& rank : ranks) {
    if (rank.step_shapes.empty()) return;
    for (const auto& [step, hash] : rank.step_shapes) {
      ++steps[step].first;
      steps[step].second.insert(hash);
    }
  }
  comparison.steps_of_other_shapes = 0;
  for (const auto& [step, seen] : steps) {
    comparison.steps_of_other_shapes +=
        seen.first == ranks.size() && seen.second.size() > 1;
  }
}

// Adds what `collective` makes each rank wait to the rows and, where ranks
// arrive apart, to `pairs`; returns the ms summed over its ranks.
double AddWaits(const std::vector<RankDigest>& ranks,
                const MatchedCollective& collective,
                const std::vector<double>& offsets, double together_ns,
                RankComparison& comparison, WaitsByPair& pairs) {
  std::vector<double> begins;
  for (const auto& [r, i] : collective.members) {
    begins.push_back(static_cast<double>(ranks[r].collectives[i].begin_ns -
                                         ranks[0].collectives[0].begin_ns) -
                     offsets[r]);
  }
  const double middle = Median(begins);
  const auto last = std::ranges::max_element(begins);
  const size_t last_rank =
      collective.members[static_cast<size_t>(last - begins.begin())].first;
  const bool skewed = *last - *std::ranges::min_element(begins) > together_ns;
  if (skewed) {
    ++comparison.skewed;
    ++comparison.rows[last_rank].last;
  }
  double all_ms = 0;
  for (size_t k = 0; k < begins.size(); ++k) {
    const auto& [r, i] = collective.members[k];
    RankRow& row = comparison.rows[r];
    // Waiting behind compute costs nothing.
    const double wait = std::min<double>(
        *last - begins[k],
        static_cast<double>(ranks[r].collectives[i].exposed_ns));
    row.waiting_ms += wait * 1e-6;
    row.late_ms += (begins[k] - middle) * 1e-6;
    all_ms += wait * 1e-6;
    if (skewed && r != last_rank) pairs[{r, last_rank}] += wait * 1e-6;
  }
  return all_ms;
}

// REQUIRES: comparison.rows are still in the order of the indices.
void ListWaits(const WaitsByPair& pairs, RankComparison& comparison) {
  for (const auto& [pair, ms] : pairs) {
    const double per_step = ms / static_cast<double>(comparison.steps);
    if (per_step < kWaitListedMs) continue;
    comparison.waits.push_back({.rank = comparison.rows[pair.first].rank,
                                .waits_for = comparison.rows[pair.second].rank,
                                .ms = per_step});
  }
  std::ranges::stable_sort(comparison.waits, std::greater(), &RankWait::ms);
  if (comparison.waits.size() > kWaitsListed) {
    comparison.waits.resize(kWaitsListed);
  }
}

// Two standard errors of the mean of `values`; 0 for fewer than two.
double NoiseOfMean(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (double value : values) sum += value;
  for (double value : values) {
    squares += (value - sum / count) * (value - sum / count);
  }
  return 2 * std::sqrt(squares / (count - 1) / count);
}

// Exposed time per step beyond that of the rank of the same group that exposes
// least in the same step, mean over the ranks: what balanced ranks would save.
// It exceeds the waiting at single collectives where a late rank also delays
// later collectives until no compute is left to cover them.
double ImbalanceMs(const std::vector<RankDigest>& ranks,
                   const std::vector<MatchedCollective>& matched,
                   int64_t steps) {
  std::map<std::pair<int64_t, uint64_t>, std::map<size_t, double>> exposed;
  for (const MatchedCollective& collective : matched) {
    auto& of_group = exposed[{collective.step, collective.group}];
    for (const auto& [r, i] : collective.members) {
      of_group[r] += static_cast<double>(ranks[r].collectives[i].exposed_ns);
    }
  }
  double sum = 0;
  for (const auto& [key, of_rank] : exposed) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [r, ns] : of_rank) least = std::min(least, ns);
    for (const auto& [r, ns] : of_rank) sum += ns - least;
  }
  return sum * 1e-6 / static_cast<double>(ranks.size()) /
         static_cast<double>(steps);
}

}  // namespace

RankComparison CompareRanks(const std::vector<RankDigest>& ranks) {
  RankComparison comparison;
  FillRows(ranks, comparison);
  comparison.why_not = WhyNotComparable(ranks);
  if (!comparison.why_not.empty()) return comparison;
  const std::vector<MatchedCollective> matched = Match(ranks, comparison);
  comparison.collectives = static_cast<int64_t>(matched.size());
  if (matched.empty()) {
    comparison.why_not = "no collective was recorded on two ranks";
    return comparison;
  }
  std::set<int64_t> steps;
  for (const MatchedCollective& collective : matched) {
    const auto& [r, i] = collective.members[0];
    steps.insert(ranks[r].collectives[i].step);
  }
  comparison.steps = static_cast<int64_t>(steps.size());
  CompareShapes(ranks, comparison);

  double residual_ns = 0;
  const std::vector<double> offsets = ClockOffsets(ranks, matched, residual_ns);
  comparison.clock_residual_us = residual_ns * 1e-3;
  const double together_ns = std::max(kTogetherShare * comparison.step_ms * 1e6,
                                      kTogetherResiduals * residual_ns);
  WaitsByPair pairs;
  std::map<int64_t, double> waits;  // by step, mean over the ranks
  for (const MatchedCollective& collective : matched) {
    waits[collective.step] +=
        AddWaits(ranks, collective, offsets, together_ns, comparison, pairs) /
        static_cast<double>(ranks.size());
  }
  std::vector<double> by_step;
  for (const auto& [step, ms] : waits) by_step.push_back(ms);
  comparison.waiting_noise_ms = NoiseOfMean(by_step);
  for (size_t r = 0; r < comparison.rows.size(); ++r) {
    RankRow& row = comparison.rows[r];
    row.clock_offset_us = offsets[r] * 1e-3;
    row.waiting_ms /= static_cast<double>(comparison.steps);
    row.late_ms /= static_cast<double>(comparison.steps);
    row.waiting_ms = std::min(row.waiting_ms, row.exposed_ms);
    comparison.waiting_ms += row.waiting_ms / comparison.rows.size();
  }
  comparison.imbalance_ms = ImbalanceMs(ranks, matched, comparison.steps);
  ListWaits(pairs, comparison);
  std::ranges::sort(comparison.rows, {}, &RankRow::rank);
  return comparison;
}

std::vector<SharedCollective> SharedCollectives(
    const std::vector<RankDigest>& ranks) {
  RankComparison counted;
  std::vector<SharedCollective> shared;
  for (MatchedCollective& matched : Match(ranks, counted))
    shared.push_back({std::move(matched.members)});
  return shared;
}

std::vector<double> LatenessScores(const RankComparison& comparison) {
  std::vector<double> late;
  for (const RankRow& row : comparison.rows) late.push_back(row.late_ms);
  if (late.empty()) return {};
  const double middle = Median(late);
  std::vector<double> deviations;
  for (double ms : late) deviations.push_back(std::abs(ms - middle));
  const double spread = Median(deviations);
  std::vector<double> scores;
  for (double ms : late) {
    scores.push_back(spread > 0    ? 0.6745 * (ms - middle) / spread
                     : ms > middle ? std::numeric_limits<double>::infinity()
                                   : 0);
  }
  return scores;
}

}  // namespace stepscope
