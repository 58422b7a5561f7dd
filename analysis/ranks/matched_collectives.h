// Which collectives of several ranks are the same one, and how far the clocks
// of the ranks disagree about them.
#pragma once

#include <stepscope/ranks.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace stepscope {

// One collective on every rank of its group.
struct MatchedCollective {
  // (index of the rank, index in its list of collectives)
  std::vector<std::pair<size_t, size_t>> members;
  int64_t step = 0;
  uint64_t group = 0;
  bool ends_together = false;
};

// The groups of RankCollective whose operations are messages between two ranks
// of a group that the recording names. Ranks of such a group do not take part
// in all of them, so they cannot be matched by their order.
std::set<uint64_t> MessageGroups(const RankDigest& rank);

// All that could be matched, without messages; counts the others.
std::vector<MatchedCollective> MatchCollectives(
    const std::vector<RankDigest>& ranks, int64_t& unmatched);

// How far each rank's clock is ahead of the median clock, in ns, by the ends of
// collectives. `residual_ns`: the median disagreement after correction.
std::vector<double> ClockOffsets(const std::vector<RankDigest>& ranks,
                                 const std::vector<MatchedCollective>& matched,
                                 double& residual_ns);

}  // namespace stepscope
