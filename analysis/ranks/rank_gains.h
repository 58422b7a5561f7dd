// What a finding that several ranks share wins for all of them together.
#pragma once

#include <stepscope/ranks.h>

#include <cstddef>
#include <vector>

namespace stepscope {

// A finding of one rank.
struct OfRank {
  size_t index = 0;  // of the rank in the list
  const RankDigest* rank = nullptr;
  const Finding* finding = nullptr;
};

// How much earlier each rank could be without the run noticing: it waits, and
// for waiting exposes, that much longer than the rank that does least. All 0
// where the ranks could not be compared.
std::vector<double> SlacksMs(const std::vector<RankDigest>& ranks,
                             const RankComparison& comparison);

// Ranks in step with each other win what the one wins that is last then; a rank
// that waits now may win less than the others by its slack. A rank that has not
// the finding may win `unseen_ms` all the same.
struct WonTogether {
  Gain gain;
  const OfRank* last = nullptr;  // nullptr: a rank that has not the finding
};
WonTogether WinTogether(const std::vector<OfRank>& those,
                        const std::vector<double>& slacks, double unseen_ms);

// The middle gain of ranks that could not be compared. REQUIRES: not empty.
Gain MiddleGain(const std::vector<OfRank>& those, size_t ranks);

}  // namespace stepscope
