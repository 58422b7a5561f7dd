// Compares the ranks of a run: which ranks arrive late at collectives, and
// which ranks wait for them.
#pragma once

#include <stepscope/ranks.h>

#include <vector>

namespace stepscope {

// Matches collectives by step, group and order, aligns the clocks by their
// ends, and measures waits. Never fails: see RankComparison::why_not.
RankComparison CompareRanks(const std::vector<RankDigest>& ranks);

// Returns how unusual each rank's lateness is, as a modified z-score (0.6745 *
// deviation from the median / median absolute deviation). Infinite where a rank
// is late and the median absolute deviation is 0. Indexed like comparison.rows.
std::vector<double> LatenessScores(const RankComparison& comparison);

// Merges the reports of all ranks into one (engine/merge_reports.cc): times are
// means, and each finding appears once. REQUIRES: ranks is not empty.
Report MergeReports(const std::vector<RankDigest>& ranks,
                    const RankComparison& comparison);

}  // namespace stepscope
