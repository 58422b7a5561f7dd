// Finds which collectives of different ranks belong together, and how far the
// clocks of the ranks disagree about them.
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

// Returns the groups (of RankCollective) that carry messages between two ranks
// of a larger process group. Ranks do not take part in all messages of their
// group, so messages cannot be matched by their order.
std::set<uint64_t> MessageGroups(const RankDigest& rank);

// Returns all collectives that could be matched, without messages. `unmatched`
// receives the number of the others.
std::vector<MatchedCollective> MatchCollectives(
    const std::vector<RankDigest>& ranks, int64_t& unmatched);

// Returns how far each rank's clock is ahead of the median clock, in ns, judged
// by the ends of collectives. `residual_ns` receives the median disagreement
// that remains after correction.
std::vector<double> ClockOffsets(const std::vector<RankDigest>& ranks,
                                 const std::vector<MatchedCollective>& matched,
                                 double& residual_ns);

}  // namespace stepscope
