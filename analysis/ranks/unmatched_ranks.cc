#include "ranks/unmatched_ranks.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "ranks/matched_collectives.h"

namespace stepscope {
namespace {

constexpr size_t kRanksCompared = 32;

// True if the ranks that `members` lists ("[0, 1]") include `rank`.
bool Includes(std::string_view members, int32_t rank) {
  while (!members.empty()) {
    const size_t digit = members.find_first_of("0123456789");
    if (digit == std::string_view::npos) return false;
    members.remove_prefix(digit);
    int32_t number = -1;
    const auto [end, error] = std::from_chars(
        members.data(), members.data() + members.size(), number);
    if (error == std::errc() && number == rank) return true;
    members.remove_prefix(static_cast<size_t>(end - members.data()));
  }
  return false;
}

// True if two of the ranks should have recorded the same collectives: a group
// of one of them has another, or all ranks, or it is unknown which.
bool ShareAGroup(const std::vector<RankDigest>& ranks) {
  for (const RankDigest& rank : ranks) {
    const RunInfo& run = rank.report.run;
    for (const GroupTraffic& group : rank.groups) {
      if (group.kind == "point-to-point") continue;
      if (group.members.empty() &&
          (group.size < 0 || group.size >= run.world_size)) {
        return true;
      }
      for (const RankDigest& other : ranks) {
        if (&other != &rank && Includes(group.members, other.report.run.rank)) {
          return true;
        }
      }
    }
  }
  return false;
}

// How many collectives of each group a step has.
using StepCounts = std::map<uint64_t, int64_t>;

std::map<int64_t, StepCounts> CountsByStep(const RankDigest& rank) {
  const std::set<uint64_t> messages = MessageGroups(rank);
  std::map<int64_t, StepCounts> steps;
  for (const RankCollective& one : rank.collectives) {
    if (!messages.contains(one.group)) ++steps[one.step][one.group];
  }
  return steps;
}

// True if both steps have collectives of some group, and equally many of each
// such group.
bool Agree(const StepCounts& a, const StepCounts& b) {
  bool any = false;
  for (const auto& [group, count] : a) {
    const auto other = b.find(group);
    if (other == b.end()) continue;
    if (other->second != count) return false;
    any = true;
  }
  return any;
}

// True if some step of one rank may be a step of another one.
bool AnyAgree(const std::vector<std::map<int64_t, StepCounts>>& ranks) {
  for (size_t a = 0; a < ranks.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      for (const auto& [number, step] : ranks[a]) {
        for (const auto& [other_number, other] : ranks[b]) {
          if (Agree(step, other)) return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

std::string WhyNoneMatched(const std::vector<RankDigest>& ranks,
                           bool& different_jobs) {
  std::vector<std::map<int64_t, StepCounts>> steps;
  std::map<int64_t, int> seen;  // on how many ranks a step was recorded
  for (const RankDigest& rank : ranks) {
    std::map<int64_t, StepCounts> of_rank = CountsByStep(rank);
    for (const auto& [number, counts] : of_rank) ++seen[number];
    if (!of_rank.empty()) steps.push_back(std::move(of_rank));
    // These are enough, and each is compared with each.
    if (steps.size() == kRanksCompared) break;
  }
  constexpr char kNone[] = "no collective was recorded on two ranks";
  if (steps.size() < 2) return kNone;
  if (AnyAgree(steps)) {
    return std::ranges::any_of(seen,
                               [](const auto& step) { return step.second > 1; })
               ? kNone
               : "the ranks were recorded in different steps";
  }
  if (!ShareAGroup(ranks)) return "the ranks have no group in common";
  different_jobs = true;
  return "these look like different jobs: no collective of one is in the "
         "other; give one job per folder";
}

}  // namespace stepscope
