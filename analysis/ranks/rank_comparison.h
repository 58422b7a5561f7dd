// Comparison of the ranks of a run: which ranks arrive late at collectives, and
// which ranks wait for them.
#pragma once

#include <stepscope/ranks.h>

#include <vector>

namespace stepscope {

// Matches collectives by step, group and order, aligns the clocks by their
// ends, and measures waits. Never fails: see RankComparison::why_not.
RankComparison CompareRanks(const std::vector<RankDigest>& ranks);

// How unusual each rank's lateness is: modified z-scores (0.6745 * deviation
// from the median / median absolute deviation); infinite where a late rank
// deviates and the median deviation is 0. Indexed like comparison.rows.
std::vector<double> LatenessScores(const RankComparison& comparison);

// The reports of all ranks as one (engine/merge_reports.cc): times are means,
// and each finding appears once. REQUIRES: ranks is not empty.
Report MergeReports(const std::vector<RankDigest>& ranks,
                    const RankComparison& comparison);

}  // namespace stepscope
