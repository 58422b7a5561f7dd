#include "ranks/matched_collectives.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "steps/steps.h"

namespace stepscope {
namespace {

// (step, group, ordinal)
using Key = std::tuple<int64_t, uint64_t, int32_t>;

}  // namespace

std::set<uint64_t> MessageGroups(const RankDigest& rank) {
  std::set<uint64_t> groups;
  for (const GroupTraffic& group : rank.groups) {
    if (group.kind == "point-to-point" && group.size > 0) {
      groups.insert(group.group);
    }
  }
  return groups;
}

std::vector<MatchedCollective> MatchCollectives(
    const std::vector<RankDigest>& ranks, int64_t& unmatched) {
  std::map<Key, MatchedCollective> by_key;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::set<uint64_t> messages = MessageGroups(ranks[r]);
    for (size_t i = 0; i < ranks[r].collectives.size(); ++i) {
      const RankCollective& one = ranks[r].collectives[i];
      if (messages.contains(one.group)) continue;
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
      ++unmatched;
    }
  }
  return matched;
}

namespace {

// Uses only collectives that end on all ranks at once, or, if there are none
// (all are broadcasts, say), the others.
bool ServesClocks(const MatchedCollective& collective, bool some_end_together) {
  return collective.ends_together || !some_end_together;
}

// Returns, for each member of the collective, how long after the median end it
// ended there.
std::vector<double> AfterTheMedian(const std::vector<RankDigest>& ranks,
                                   const MatchedCollective& collective,
                                   const std::vector<double>& offsets) {
  const auto& [first, index] = collective.members[0];
  // Times since the epoch in ns need more than the 53 bits of a double.
  // Differences do not.
  const int64_t base = ranks[first].collectives[index].end_ns;
  std::vector<double> ends;
  for (const auto& [r, i] : collective.members) {
    ends.push_back(static_cast<double>(ranks[r].collectives[i].end_ns - base) -
                   offsets[r]);
  }
  const double middle = Median(ends);
  for (double& end : ends) end -= middle;
  return ends;
}

// Makes a first estimate, group by group. A rank's clock is known relative to
// those of its group, and ranks that are in several groups link these groups.
// Ranks without any link keep offset 0.
std::vector<double> OffsetsByGroups(
    const std::vector<RankDigest>& ranks,
    const std::vector<MatchedCollective>& matched, bool some_end_together) {
  std::map<uint64_t, std::map<size_t, std::vector<double>>> ahead;
  const std::vector<double> none(ranks.size(), 0);
  for (const MatchedCollective& collective : matched) {
    if (!ServesClocks(collective, some_end_together)) continue;
    const std::vector<double> ends = AfterTheMedian(ranks, collective, none);
    for (size_t k = 0; k < ends.size(); ++k) {
      ahead[collective.group][collective.members[k].first].push_back(ends[k]);
    }
  }
  std::vector<std::map<size_t, double>> groups;  // median lateness by rank
  std::vector<std::vector<size_t>> groups_of(ranks.size());
  for (const auto& [group, of_rank] : ahead) {
    for (const auto& [r, list] : of_rank) {
      groups_of[r].push_back(groups.size());
    }
    groups.emplace_back();
    for (const auto& [r, list] : of_rank) groups.back()[r] = Median(list);
  }
  // Depth first over the groups. The first group of each connected set fixes
  // the origin. Each further group is shifted to agree with the ranks already
  // placed.
  std::vector<double> offsets(ranks.size(), 0);
  std::vector<bool> known(ranks.size()), done(groups.size());
  for (size_t begin = 0; begin < groups.size(); ++begin) {
    std::vector<size_t> open = {begin};
    while (!open.empty()) {
      const size_t group = open.back();
      open.pop_back();
      if (done[group]) continue;
      done[group] = true;
      std::vector<double> shifts;
      for (const auto& [r, ns] : groups[group]) {
        if (known[r]) shifts.push_back(offsets[r] - ns);
      }
      const double shift = shifts.empty() ? 0 : Median(shifts);
      for (const auto& [r, ns] : groups[group]) {
        if (known[r]) continue;
        offsets[r] = ns + shift;
        known[r] = true;
        open.insert(open.end(), groups_of[r].begin(), groups_of[r].end());
      }
    }
  }
  // Only differences between clocks are known, so the median clock is taken as
  // right.
  const double middle = Median(offsets);
  for (double& offset : offsets) offset -= middle;
  return offsets;
}

}  // namespace

std::vector<double> ClockOffsets(const std::vector<RankDigest>& ranks,
                                 const std::vector<MatchedCollective>& matched,
                                 double& residual_ns) {
  const bool some_end_together =
      std::ranges::any_of(matched, &MatchedCollective::ends_together);
  std::vector<std::vector<double>> ahead(ranks.size());
  std::vector<double> offsets =
      OffsetsByGroups(ranks, matched, some_end_together);
  // The median end depends on the offsets, so a second round refines the first.
  for (int round = 0; round < 2; ++round) {
    for (auto& list : ahead) list.clear();
    for (const MatchedCollective& collective : matched) {
      if (!ServesClocks(collective, some_end_together)) continue;
      const std::vector<double> ends =
          AfterTheMedian(ranks, collective, offsets);
      for (size_t k = 0; k < ends.size(); ++k) {
        ahead[collective.members[k].first].push_back(ends[k]);
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

std::vector<SharedCollective> SharedCollectives(
    const std::vector<RankDigest>& ranks) {
  int64_t unmatched = 0;
  std::vector<SharedCollective> shared;
  for (MatchedCollective& matched : MatchCollectives(ranks, unmatched)) {
    shared.push_back({std::move(matched.members)});
  }
  return shared;
}

}  // namespace stepscope
