#include "ranks/rank_comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "ranks/inherited_waits.h"
#include "ranks/joint_replay.h"
#include "ranks/matched_collectives.h"
#include "ranks/rank_groups.h"
#include "ranks/rank_machines.h"
#include "ranks/unmatched_ranks.h"
#include "steps/steps.h"

namespace stepscope {
namespace {

// Arrivals within this share of a step, or within this many clock residuals,
// count as simultaneous. Jitter alone always makes some rank the last one.
constexpr double kTogetherShare = 0.001;
constexpr double kTogetherResiduals = 3;
// Each of a thousand ranks may wait for each other one: a million pairs.
constexpr size_t kWaitsListed = 1000;
// Shorter waits for one rank, in ms per step, are left out.
constexpr double kWaitListedMs = 1e-3;

// (waiting rank, rank it waits for), as indices -> ms
using WaitsByPair = std::map<std::pair<size_t, size_t>, double>;

std::string WhyNotComparable(const std::vector<RankDigest>& ranks,
                             bool& different_jobs) {
  if (ranks.size() < 2) return "there is only one rank";
  std::set<int32_t> seen;
  for (const RankDigest& rank : ranks) {
    const RunInfo& run = rank.report.run;
    if (run.rank < 0) return run.source + " does not name its rank";
    if (!seen.insert(run.rank).second) {
      return "two traces belong to rank " + std::to_string(run.rank);
    }
    if (run.world_size != ranks[0].report.run.world_size) {
      different_jobs = true;
      return "the traces come from jobs of different world sizes";
    }
  }
  return "";
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
    row.host = report.run.host;
    row.sm_clock_mhz = rank.sm_clock_mhz > 0 ? rank.sm_clock_mhz : -1;
    row.kernels = rank.kernels;
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
        // A step that some rank did not record cannot be compared.
        seen.first == ranks.size() && seen.second.size() > 1;
  }
}

// Adds up who waits for whom. Collectives must be added in order of time,
// because a rank that waited in one group may be late in another group for that
// reason.
class WaitCounter {
 public:
  WaitCounter(const std::vector<RankDigest>& ranks,
              const std::vector<double>& offsets, double together_ns,
              RankComparison& comparison)
      : ranks_(ranks),
        offsets_(offsets),
        together_ns_(together_ns),
        comparison_(comparison),
        groups_(ranks, offsets),
        machines_(ranks),
        inherited_(ranks.size()) {}

  // Returns the ms that the ranks of the collective wait, summed. REQUIRES:
  // comparison.rows are still in the order of `ranks`.
  double Add(const MatchedCollective& collective) {
    const size_t group = groups_.IndexOf(collective.group);
    // begins: arrivals. own: arrivals less the waits in other groups since the
    // last collective of this group. work: arrivals less all waits in this
    // step.
    std::vector<double> begins, own, work;
    std::vector<InheritedWaits::Delay> delays;
    for (const auto& [r, i] : collective.members) {
      begins.push_back(static_cast<double>(ranks_[r].collectives[i].begin_ns -
                                           ranks_[0].collectives[0].begin_ns) -
                       offsets_[r]);
      own.push_back(begins.back() - inherited_.Of(r, group).ns);
      delays.push_back(inherited_.InStep(r, collective.step, group));
      work.push_back(begins.back() - delays.back().ns);
    }
    const double middle = Median(own);
    const auto last =
        static_cast<size_t>(std::ranges::max_element(begins) - begins.begin());
    const size_t last_rank = collective.members[last].first;
    // The last rank is the cause, unless most of its lateness comes from waits
    // in other groups.
    const double own_ns = work[last] - Median(work);
    const double inherited_ns = begins[last] - Median(begins) - own_ns;
    const size_t cause =
        delays[last].source != SIZE_MAX && inherited_ns > std::max(own_ns, 0.0)
            ? delays[last].source
            : last_rank;
    const bool skewed =
        begins[last] - *std::ranges::min_element(begins) > together_ns_;
    if (skewed) {
      ++comparison_.skewed;
      ++comparison_.rows[cause].last;
    }
    double all_ms = 0;
    std::vector<double> waits_ms;
    for (size_t k = 0; k < begins.size(); ++k) {
      const auto& [r, i] = collective.members[k];
      RankRow& row = comparison_.rows[r];
      // A wait that compute covers costs nothing.
      const double wait = std::min<double>(
          begins[last] - begins[k],
          static_cast<double>(ranks_[r].collectives[i].exposed_ns));
      row.waiting_ms += wait * 1e-6;
      row.late_ms += (own[k] - middle) * 1e-6;
      all_ms += wait * 1e-6;
      waits_ms.push_back(wait * 1e-6);
      if (skewed && r != cause) pairs_[{r, cause}] += wait * 1e-6;
      inherited_.Add(r, collective.step, group, cause,
                     wait > together_ns_ ? wait : 0);
    }
    const BusTransfer moved = groups_.AddWait(
        collective, all_ms,
        skewed ? static_cast<int64_t>(last_rank) : int64_t{-1}, begins[last]);
    machines_.Add(collective, group, skewed ? cause : SIZE_MAX, waits_ms,
                  moved);
    return all_ms;
  }

  void ListGroups() {
    comparison_.groups = groups_.Rows();
    machines_.NameLateHosts(comparison_.groups);
    LimitGroups(comparison_.groups);
    comparison_.machines = machines_.Rows(comparison_.steps);
  }
  const WaitsByPair& pairs() const { return pairs_; }

 private:
  const std::vector<RankDigest>& ranks_;
  const std::vector<double>& offsets_;
  double together_ns_ = 0;
  RankComparison& comparison_;
  GroupTotals groups_;
  MachineTotals machines_;
  InheritedWaits inherited_;
  WaitsByPair pairs_;
};

// Returns the indices of `matched`, ordered by the end of each collective.
std::vector<size_t> InOrderOfTime(const std::vector<RankDigest>& ranks,
                                  const std::vector<MatchedCollective>& matched,
                                  const std::vector<double>& offsets) {
  std::vector<std::pair<double, size_t>> ends;
  for (size_t m = 0; m < matched.size(); ++m) {
    const auto& [r, i] = matched[m].members[0];
    ends.push_back({static_cast<double>(ranks[r].collectives[i].end_ns -
                                        ranks[0].collectives[0].end_ns) -
                        offsets[r],
                    m});
  }
  std::ranges::sort(ends);
  std::vector<size_t> order;
  order.reserve(ends.size());
  for (const auto& [end, m] : ends) order.push_back(m);
  return order;
}

// REQUIRES: comparison.rows are still in the order of the digests.
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

// Returns what balanced ranks would save per step: each rank's exposed time
// beyond that of the rank of its group that exposes least in the same step, as
// a mean over the ranks. This is more than the waiting at single collectives if
// a late rank also delays later collectives until no compute is left to cover
// them.
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

// Fills in how much of the waits is due to the starts of the only recorded
// step. Such waits are at each rank's first collective, as the ranks leave it
// together. `order` lists the collectives in order of time.
void MeasureStarts(const std::vector<RankDigest>& ranks,
                   const std::vector<MatchedCollective>& matched,
                   const std::vector<size_t>& order,
                   const std::vector<double>& offsets,
                   RankComparison& comparison) {
  if (std::ranges::any_of(ranks, [](const RankDigest& rank) {
        return rank.only_step_begin_ns == 0;
      })) {
    return;
  }
  const auto at = [&](size_t r, int64_t ns) {
    return static_cast<double>(ns - ranks[0].only_step_begin_ns) - offsets[r];
  };
  std::vector<double> starts;
  for (size_t r = 0; r < ranks.size(); ++r) {
    starts.push_back(at(r, ranks[r].only_step_begin_ns));
  }
  const auto [first, last] = std::ranges::minmax(starts);
  comparison.starts_apart_ms = (last - first) * 1e-6;
  std::vector<bool> met(ranks.size());
  double sum = 0;
  for (const size_t m : order) {
    bool is_first = true;
    double arrival = -std::numeric_limits<double>::infinity();
    double longest = arrival;  // from a rank's start to its arrival
    for (const auto& [r, i] : matched[m].members) {
      is_first &= !met[r];
      met[r] = true;
      const double begin = at(r, ranks[r].collectives[i].begin_ns);
      arrival = std::max(arrival, begin);
      longest = std::max(longest, begin - starts[r]);
    }
    if (!is_first) continue;
    for (const auto& [r, i] : matched[m].members) {
      const RankCollective& one = ranks[r].collectives[i];
      const double begin = at(r, one.begin_ns);
      const double wait =
          std::min(arrival - begin, static_cast<double>(one.exposed_ns));
      sum += std::max(0.0, wait - (longest - (begin - starts[r])));
    }
  }
  comparison.start_wait_ms = std::min(
      sum * 1e-6 / static_cast<double>(ranks.size()), comparison.waiting_ms);
}

// Counts the matched collectives that lack ranks of their group, and lists the
// ranks without any.
void CountPartial(const std::vector<RankDigest>& ranks,
                  const std::vector<MatchedCollective>& matched,
                  RankComparison& comparison) {
  std::map<uint64_t, int32_t> sizes;
  for (const RankDigest& rank : ranks) {
    for (const GroupTraffic& group : rank.groups) {
      int32_t& size = sizes.try_emplace(group.group, -1).first->second;
      size = std::max(size, group.size);
    }
  }
  std::vector<bool> is_matched(ranks.size());
  for (const MatchedCollective& collective : matched) {
    for (const auto& [r, i] : collective.members) is_matched[r] = true;
    const auto size = sizes.find(collective.group);
    comparison.partial +=
        size != sizes.end() &&
        static_cast<int32_t>(collective.members.size()) < size->second;
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!is_matched[r] && !ranks[r].collectives.empty()) {
      comparison.unmatched_ranks.push_back(ranks[r].report.run.rank);
    }
  }
  std::ranges::sort(comparison.unmatched_ranks);
}

// Returns, by rank, in how many of the compared steps it has collectives.
std::vector<double> StepsOfRanks(
    const std::vector<RankDigest>& ranks,
    const std::vector<MatchedCollective>& matched) {
  std::vector<std::set<int64_t>> steps(ranks.size());
  for (const MatchedCollective& collective : matched) {
    for (const auto& [r, i] : collective.members) {
      steps[r].insert(collective.step);
    }
  }
  std::vector<double> counts;
  for (const std::set<int64_t>& of : steps) {
    counts.push_back(static_cast<double>(of.size()));
  }
  return counts;
}

}  // namespace

RankComparison CompareRanks(const std::vector<RankDigest>& ranks) {
  RankComparison comparison;
  FillRows(ranks, comparison);
  comparison.why_not = WhyNotComparable(ranks, comparison.different_jobs);
  if (!comparison.why_not.empty()) return comparison;
  const std::vector<MatchedCollective> matched =
      MatchCollectives(ranks, comparison.unmatched);
  comparison.collectives = static_cast<int64_t>(matched.size());
  if (matched.empty()) {
    comparison.why_not = WhyNoneMatched(ranks, comparison.different_jobs);
    std::ranges::sort(comparison.rows, {}, &RankRow::rank);
    comparison.groups =
        GroupTotals(ranks, std::vector<double>(ranks.size(), 0)).Rows();
    LimitGroups(comparison.groups);
    comparison.pipelines = PipelinesOf(ranks, comparison);
    return comparison;
  }
  std::set<int64_t> steps;
  for (const MatchedCollective& collective : matched) {
    const auto& [r, i] = collective.members[0];
    steps.insert(ranks[r].collectives[i].step);
  }
  comparison.steps = static_cast<int64_t>(steps.size());
  CountPartial(ranks, matched, comparison);
  CompareShapes(ranks, comparison);

  double residual_ns = 0;
  const std::vector<double> offsets = ClockOffsets(ranks, matched, residual_ns);
  comparison.clock_residual_us = residual_ns * 1e-3;
  const double together_ns = std::max(kTogetherShare * comparison.step_ms * 1e6,
                                      kTogetherResiduals * residual_ns);
  WaitCounter counter(ranks, offsets, together_ns, comparison);
  std::map<int64_t, double> waits;  // by step, mean over the ranks
  const std::vector<size_t> order = InOrderOfTime(ranks, matched, offsets);
  for (const size_t m : order) {
    waits[matched[m].step] +=
        counter.Add(matched[m]) / static_cast<double>(ranks.size());
  }
  std::vector<double> by_step;
  by_step.reserve(waits.size());
  for (const auto& [step, ms] : waits) by_step.push_back(ms);
  comparison.waiting_noise_ms = NoiseOfMean(by_step);
  // A rank may have recorded fewer steps than others.
  const std::vector<double> own_steps = StepsOfRanks(ranks, matched);
  const auto compared = std::max<double>(
      1, static_cast<double>(std::ranges::count_if(
             own_steps, [](double count) { return count > 0; })));
  for (size_t r = 0; r < comparison.rows.size(); ++r) {
    RankRow& row = comparison.rows[r];
    row.clock_offset_us = offsets[r] * 1e-3;
    if (own_steps[r] <= 0) continue;
    row.waiting_ms /= own_steps[r];
    row.late_ms /= own_steps[r];
    // Collectives that overlap each count the same exposed time, but the step
    // contains that time only once.
    row.waiting_ms = std::min(row.waiting_ms, row.exposed_ms);
    comparison.waiting_ms += row.waiting_ms / compared;
  }
  comparison.imbalance_ms = ImbalanceMs(ranks, matched, comparison.steps);
  MeasureStarts(ranks, matched, order, offsets, comparison);
  ListWaits(counter.pairs(), comparison);
  std::ranges::sort(comparison.rows, {}, &RankRow::rank);
  counter.ListGroups();
  comparison.pipelines = PipelinesOf(ranks, comparison);
  MendSlowest(ranks, matched, offsets, comparison);
  return comparison;
}

std::vector<double> LatenessScores(const RankComparison& comparison) {
  std::vector<double> late;
  for (const RankRow& row : comparison.rows) late.push_back(row.late_ms);
  if (late.empty()) return {};
  const double middle = Median(late);
  std::vector<double> deviations;
  deviations.reserve(late.size());
  for (double ms : late) deviations.push_back(std::abs(ms - middle));
  const double spread = Median(deviations);
  std::vector<double> scores;
  scores.reserve(late.size());
  for (double ms : late) {
    scores.push_back(spread > 0    ? 0.6745 * (ms - middle) / spread
                     : ms > middle ? std::numeric_limits<double>::infinity()
                                   : 0);
  }
  return scores;
}

}  // namespace stepscope
