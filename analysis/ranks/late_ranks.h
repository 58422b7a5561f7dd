// Why a rank is late: what it spends longer on than the ranks that do the same
// work, and whether it shares that with its machine.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <utility>

namespace stepscope {

// True if two ranks do the same work by design. The stages of a pipeline do
// not: the first one embeds, the last one computes the loss.
bool AreAlike(const RankRow& a, const RankRow& b);

// The cause on which the rank spends the most time beyond the median of the
// ranks like it: its key and the difference in ms per step. Empty if it is
// below 1 % of the step.
std::pair<std::string, double> CauseOf(const RankComparison& ranks,
                                       const RankRow& late);

// True if the rank's GPU computes longer than those of the ranks like it, by as
// many kernels, and input shapes differ between ranks in most steps: its
// batches are larger. With equal ones the others would compute longer than they
// do now.
bool HasLargerBatches(const RankComparison& ranks, const RankRow& late);

// Why a rank with a GPU computes longer, as a sentence with a space before it:
// its clock, slower kernels, or more kernels; "" if nothing says.
std::string LongerInWords(const RankComparison& ranks, const RankRow& late);

// What to do about the cause of a late rank.
std::string FixOf(const std::string& cause, const RankComparison& ranks,
                  const RankRow& late);

// The machines of the ranks compared as if each were a rank: what its ranks
// have is their mean, and how often one of them is last counts for it. No rows
// if there are fewer than two machines, or as many as ranks.
RankComparison ByHost(const RankComparison& ranks);

}  // namespace stepscope
