// All ranks replayed together from their digests.
//
// Between two collectives each rank does work of its own, at its own pace. A
// collective starts its transfer when the last rank has its data ready, and
// ends on all ranks when the transfer is done. A rank that needs the result
// stands still until then. Each rank's digest records when the data of a
// collective were ready and from when on the rank only waited for it. The work
// between collectives follows from these times.
#pragma once

#include <stepscope/ranks.h>

#include <vector>

#include "ranks/matched_collectives.h"

namespace stepscope {

// Fills in comparison.mended, or comparison.why_not_mended. Predicts the step
// for one change to the rank that the others wait for most: all its work takes
// as long as the median of the ranks with the same program; or, if its batches
// are larger, it and those ranks get equal batches. `offsets` are the clock
// offsets in ns. REQUIRES: comparison.rows, .waits and .pipelines are filled
// in.
void MendSlowest(const std::vector<RankDigest>& ranks,
                 const std::vector<MatchedCollective>& matched,
                 const std::vector<double>& offsets,
                 RankComparison& comparison);

}  // namespace stepscope
