// Explains why a rank is late: what it spends longer on than the ranks that do
// the same work, and whether the other ranks of its machine do so too.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <utility>

namespace stepscope {

// True if two ranks do the same work by design. The stages of a pipeline do
// not: the first one embeds, the last one computes the loss.
bool AreAlike(const RankRow& a, const RankRow& b);

// Returns the cause on which the rank spends most time beyond the median of the
// ranks like it: the key and the difference in ms per step. Empty if the
// difference is below 1 % of the step.
std::pair<std::string, double> CauseOf(const RankComparison& ranks,
                                       const RankRow& late);

// True if the rank has larger batches: its GPU computes longer than those of
// the ranks like it, with as many kernels, and input shapes differ between
// ranks in most steps. With equal batches the other ranks would compute longer
// than now.
bool HasLargerBatches(const RankComparison& ranks, const RankRow& late);

// Returns why a rank with a GPU computes longer, as a sentence after a space:
// its clock, slower kernels, or more kernels; "" if the reason is unknown.
std::string LongerInWords(const RankComparison& ranks, const RankRow& late);

// Returns what to do about the cause of a late rank.
std::string FixOf(const std::string& cause, const RankComparison& ranks,
                  const RankRow& late);

// Compares the machines of the ranks as if each were a rank. A machine's times
// are the means of its ranks, and it is last whenever one of its ranks is. No
// rows if there are fewer than two machines, or as many machines as ranks.
RankComparison ByHost(const RankComparison& ranks);

}  // namespace stepscope
