#include "ranks/joint_program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace stepscope {

JointRecording::JointRecording(const std::vector<RankDigest>& ranks,
                               const std::vector<MatchedCollective>& matched,
                               const std::vector<double>& offsets)
    : ranks_(ranks),
      matched_(matched),
      offsets_(offsets),
      base_ns_(ranks[0].collectives[0].begin_ns) {}

JointRun JointRecording::Make() const {
  JointRun run;
  std::vector<std::unordered_map<size_t, size_t>> of_rank(ranks_.size());
  std::vector<std::pair<double, size_t>> order;
  for (size_t m = 0; m < matched_.size(); ++m) {
    double arrival = -kNeverNs, end = kNeverNs;
    for (const auto& [r, i] : matched_[m].members) {
      of_rank[r][i] = m;
      const RankCollective& one = ranks_[r].collectives[i];
      arrival = std::max(arrival, At(r, one.begin_ns));
      end = std::min(end, At(r, one.end_ns));
    }
    run.transfers.push_back({.ranks = matched_[m].members.size(),
                             .step = matched_[m].step,
                             .ns = std::max(0.0, end - arrival),
                             .recorded_end = end});
    order.push_back({end, m});
  }
  // Collectives of one process group run one after the other.
  std::ranges::sort(order);
  // RankCollective::group differs by kind of operation, but all kinds of one
  // process group take turns. So identify the process group by its ranks and
  // description.
  std::map<std::tuple<std::string, std::string, int32_t>, size_t> last;
  for (const auto& [end, m] : order) {
    const GroupTraffic* group =
        GroupOf(matched_[m].members[0].first, matched_[m].group);
    if (group == nullptr) continue;
    const auto [entry, is_new] =
        last.try_emplace({group->members.empty() ? group->name : group->members,
                          group->description, group->size},
                         m);
    if (!is_new) {
      run.transfers[m].before = entry->second;
      run.transfers[entry->second].after = m;
      entry->second = m;
    }
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    run.programs.push_back(ProgramOf(r, of_rank[r]));
  }
  return run;
}

ProgramShape JointRecording::ShapeOf(size_t r,
                                     const RankProgram& program) const {
  ProgramShape shape;
  for (const RankItem& item : program) {
    const GroupTraffic* group = GroupOf(r, matched_[item.collective].group);
    if (group == nullptr) {
      shape.push_back({"", false, 0});
    } else {
      shape.push_back({group->kind, group->is_integer, group->size});
    }
  }
  return shape;
}

double JointRecording::At(size_t r, int64_t ns) const {
  return static_cast<double>(ns - base_ns_) - offsets_[r];
}

const GroupTraffic* JointRecording::GroupOf(size_t r, uint64_t group) const {
  const auto found =
      std::ranges::find(ranks_[r].groups, group, &GroupTraffic::group);
  return found == ranks_[r].groups.end() ? nullptr : &*found;
}

RankProgram JointRecording::ProgramOf(
    size_t r, const std::unordered_map<size_t, size_t>& matched) const {
  const std::vector<RankCollective>& list = ranks_[r].collectives;
  // When the rank stood still.
  std::vector<std::pair<double, double>> stalls;
  for (size_t i = 0; i < list.size(); ++i) {
    // If a collective was not matched, the wait for it counts as work.
    if (list[i].stalled_ns <= 0 || !matched.contains(i)) continue;
    stalls.push_back(
        {At(r, list[i].end_ns - list[i].stalled_ns), At(r, list[i].end_ns)});
  }
  // Collectives on several streams may hold up the rank at the same time.
  // Merge their stalls, so that this time counts once.
  std::ranges::sort(stalls);
  std::vector<std::tuple<double, double, double>>
      merged;  // (start, end, stalled before start)
  double so_far = 0;
  for (const auto& [begin, end] : stalls) {
    if (!merged.empty() && begin <= std::get<1>(merged.back())) {
      double& last = std::get<1>(merged.back());
      so_far += std::max(0.0, end - last);
      last = std::max(last, end);
      continue;
    }
    merged.push_back({begin, end, so_far});
    so_far += end - begin;
  }
  // Translates a time on the clock into the work that the rank has done by
  // then. It subtracts all stalls before that time, and of a stall still
  // going on the part that has passed.
  const auto work = [&](double ns) {
    const auto after = std::ranges::upper_bound(
        merged, ns, {}, [](const auto& stall) { return std::get<0>(stall); });
    if (after == merged.begin()) return ns;
    const auto& [begin, end, before] = *std::prev(after);
    return ns - before - (std::min(ns, end) - begin);
  };
  RankProgram program;
  for (size_t i = 0; i < list.size(); ++i) {
    const auto found = matched.find(i);
    if (found == matched.end()) continue;
    const RankCollective& one = list[i];
    RankItem item{.collective = found->second};
    item.ready = work(At(r, one.begin_ns - one.queued_ns));
    if (one.stalled_ns > 0) {
      item.joined =
          std::max(item.ready, work(At(r, one.end_ns - one.stalled_ns)));
    }
    program.push_back(item);
  }
  return program;
}

}  // namespace stepscope
