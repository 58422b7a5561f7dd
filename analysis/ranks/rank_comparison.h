// Comparing ranks: who arrives late at collectives, and who waits.
#pragma once

#include <stepscope/ranks.h>

#include <vector>

namespace stepscope {

// Aligns the clocks by the ends of collectives and measures the waits.
RankComparison CompareRanks(const std::vector<RankDigest>& ranks);

// How many times its spread a rank's lateness lies from that of the middle rank
// (modified z-score, on the median absolute deviation); infinite where the
// others agree exactly. Indexed like comparison.rows.
std::vector<double> LatenessScores(const RankComparison& comparison);

// The findings of single ranks as findings of the run (merge_reports.cc).
Report MergeReports(const std::vector<RankDigest>& ranks,
                    const RankComparison& comparison);

}  // namespace stepscope
