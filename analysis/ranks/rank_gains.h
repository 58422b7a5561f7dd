// Computes the gain for the whole run of a finding that several ranks share.
#pragma once

#include <stepscope/ranks.h>

#include <cstddef>
#include <vector>

namespace stepscope {

// A finding and the rank that has it.
struct RankFinding {
  size_t index = 0;  // of the rank, in the list of digests
  const RankDigest* rank = nullptr;
  const Finding* finding = nullptr;
};

// Returns the slack of each rank in ms per step: how much slower it could get
// without delaying the run. That is how much longer it waits (and therefore
// exposes collectives) than the rank that waits least. All 0 if the ranks could
// not be compared. Indexed like `ranks`.
std::vector<double> SlacksMs(const std::vector<RankDigest>& ranks,
                             const RankComparison& comparison);

// The gain if all ranks make the change. The run gains what the rank that is
// then slowest gains, so this is the smallest (own gain + slack) over the
// ranks. Ranks without the finding count with `unseen_ms`, because their gain
// may be just below the threshold.
struct JointGain {
  Gain gain;
  const RankFinding* last = nullptr;  // the then-slowest rank; nullptr if that
                                      // rank does not have the finding
};
JointGain CombineGains(const std::vector<RankFinding>& findings,
                       const std::vector<double>& slacks, double unseen_ms);

// Returns the median gain over all `ranks`, used if they could not be compared.
// Ranks without the finding count as 0. REQUIRES: `findings` is not empty.
Gain MedianGain(const std::vector<RankFinding>& findings, size_t ranks);

}  // namespace stepscope
