// The time of a step by module and by source line of the program, for
// recordings that have them. Functions without state.
#pragma once

#include <stepscope/ranks.h>
#include <stepscope/report.h>

#include <cstddef>
#include <vector>

#include "context/analysis_context.h"

namespace stepscope {

// No report lists more modules or source lines.
inline constexpr size_t kPlacesListed = 50;

// Every module whose forward pass was recorded, largest self time first (of the
// GPU where there is one). Operators of the backward pass belong to the module
// of their forward operator. Without steps: totals over the whole Trace. At
// most `most` of them.
std::vector<PlaceTime> TimeByModule(const AnalysisContext& context,
                                    size_t most = kPlacesListed);

// The same by the line of the program that called, from stacks.
std::vector<PlaceTime> TimeByLine(const AnalysisContext& context);

// The means over the ranks' reports.
void MergePlaces(const std::vector<RankDigest>& ranks, Report& run);

}  // namespace stepscope
