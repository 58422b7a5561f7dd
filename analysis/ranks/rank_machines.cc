#include "ranks/rank_machines.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stepscope {

void MachineTotals::Lateness::Add(int64_t step, bool is_last,
                                  double by_chance) {
  OfStep& of = steps[step];
  ++of.skewed;
  of.last += is_last;
  of.by_chance += by_chance;
}

int64_t MachineTotals::Lateness::skewed() const {
  int64_t sum = 0;
  for (const auto& [step, of] : steps) sum += of.skewed;
  return sum;
}

int64_t MachineTotals::Lateness::last() const {
  int64_t sum = 0;
  for (const auto& [step, of] : steps) sum += of.last;
  return sum;
}

// True if the machine is late more often than chance explains, by two standard
// errors (as for all noise in a report). Steps count as the independent
// samples, because a rank that is late at one collective is also late at the
// next ones of its step.
bool MachineTotals::Lateness::IsNoChance() const {
  if (steps.empty()) return false;
  const auto count = static_cast<double>(steps.size());
  double seen = 0, chance = 0;
  for (const auto& [step, of] : steps) {
    const auto skewed = static_cast<double>(of.skewed);
    seen += static_cast<double>(of.last) / skewed / count;
    chance += of.by_chance / skewed / count;
  }
  return seen - chance > 2 * std::sqrt(chance * (1 - chance) / count);
}

MachineTotals::MachineTotals(const std::vector<RankDigest>& ranks)
    : ranks_(ranks) {
  std::map<std::string, size_t> by_host;
  for (const RankDigest& rank : ranks) {
    const auto [entry, is_new] =
        by_host.try_emplace(rank.report.run.host, machines_.size());
    if (is_new) {
      machines_.emplace_back();
      machines_.back().row.host = entry->first;
    }
    machine_of_.push_back(entry->second);
    machines_[entry->second].row.ranks.push_back(rank.report.run.rank);
  }
  // If the machine of any rank is unknown, that rank may share one with any
  // other rank. Then nothing is said about machines.
  known_ = machines_.size() > 1 && !by_host.contains("");
  members_.resize(machines_.size());
}

void MachineTotals::Add(const MatchedCollective& collective, size_t group,
                        size_t cause, const std::vector<double>& waits_ms,
                        const BusTransfer& transfer) {
  if (!known_) return;
  // `members_` is all 0 between calls. Only the entries of `taking_part` are
  // reset, so a call costs no more than its members.
  std::vector<size_t> taking_part;
  for (const auto& [r, i] : collective.members) {
    if (members_[machine_of_[r]]++ == 0) taking_part.push_back(machine_of_[r]);
  }
  if (taking_part.size() == 1) {
    machines_[taking_part[0]].inside += transfer;
  } else {
    // A machine can be late only relative to others that take part.
    if (cause < ranks_.size()) ++skewed_[group];
    const auto all = static_cast<double>(collective.members.size());
    for (const size_t m : taking_part) {
      Machine& machine = machines_[m];
      machine.across += transfer;
      if (cause >= ranks_.size()) continue;
      const bool is_last = machine_of_[cause] == m;
      // A machine with more ranks in the group is last more often without being
      // slow.
      const double by_chance = static_cast<double>(members_[m]) / all;
      machine.lateness.Add(collective.step, is_last, by_chance);
      groups_[group][m].Add(collective.step, is_last, by_chance);
    }
  }
  for (size_t k = 0; cause < ranks_.size() && k < waits_ms.size(); ++k) {
    const size_t waiting = machine_of_[collective.members[k].first];
    if (waiting != machine_of_[cause]) {
      machines_[machine_of_[cause]].waits_ms += waits_ms[k];
    }
  }
  for (const size_t m : taking_part) members_[m] = 0;
}

std::vector<MachineRow> MachineTotals::Rows(int64_t steps) const {
  std::vector<MachineRow> rows;
  if (!known_) return rows;
  for (const Machine& machine : machines_) {
    MachineRow row = machine.row;
    std::ranges::sort(row.ranks);
    // Mean over the ranks on other machines. There is at least one, because
    // there are several machines.
    const auto others = static_cast<double>(ranks_.size() - row.ranks.size());
    row.waited_for_ms = machine.waits_ms / others /
                        static_cast<double>(std::max<int64_t>(steps, 1));
    row.skewed = machine.lateness.skewed();
    row.last = machine.lateness.last();
    row.recurs = machine.lateness.IsNoChance();
    row.inside_gb_per_s = machine.inside.GbPerS();
    row.across_gb_per_s = machine.across.GbPerS();
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, {}, [](const MachineRow& row) {
    return std::pair{-row.waited_for_ms, row.ranks[0]};
  });
  return rows;
}

void MachineTotals::NameLateHosts(std::vector<RankGroupRow>& rows) const {
  for (const auto& [group, machines] : groups_) {
    if (group >= rows.size()) continue;
    RankGroupRow& row = rows[group];
    row.skewed = skewed_.at(group);
    for (const auto& [m, lateness] : machines) {
      const int64_t last = lateness.last();
      if (last <= row.late_host_last || !lateness.IsNoChance()) continue;
      row.late_host = machines_[m].row.host;
      row.late_host_last = last;
    }
  }
}

}  // namespace stepscope
