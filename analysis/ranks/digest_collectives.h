// The collectives that the digest of a rank keeps, so that they can be compared
// with those of other ranks and replayed together with them.
#pragma once

#include <stepscope/ranks.h>

#include "context/analysis_context.h"

namespace stepscope {

// Fills in `collectives` and `groups` of the digest from the steady steps. If
// there are more than kMostRankCollectives, a Loss in the digest's report says
// what was left out.
void DigestCollectives(const AnalysisContext& context, RankDigest& digest);

}  // namespace stepscope
