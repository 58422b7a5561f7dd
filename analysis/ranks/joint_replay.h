// All ranks replayed together from their digests.
//
// Between two collectives a rank does work of its own, at its own pace. A
// collective ends on all ranks when its last rank has its data ready, and after
// the time that the transfer takes; a rank that needs the result stands still
// until then. What each rank's digest knows of a collective (when its data were
// ready, and since when the rank only waited) gives the work between them.
#pragma once

#include <stepscope/ranks.h>

#include <vector>

#include "ranks/matched_collectives.h"

namespace stepscope {

// Fills in comparison.mended, or comparison.why_not_mended: what the step would
// be if the rank that most waiting is for took as long for everything as the
// median of the ranks with the same program; or, if its batches are larger, if
// it and they had equal ones. `offsets` are those of the clocks, in ns.
// REQUIRES: comparison.rows, .waits and .pipelines are filled in.
void MendSlowest(const std::vector<RankDigest>& ranks,
                 const std::vector<MatchedCollective>& matched,
                 const std::vector<double>& offsets,
                 RankComparison& comparison);

}  // namespace stepscope
