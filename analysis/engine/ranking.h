// Ranking: the severity and the order of findings, and which of them are
// superseded by others.
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// Sets severities, removes gains if the recording is incomplete, and drops
// findings whose time is counted under another finding, adding "id (by id)" to
// `superseded`. Sorts: findings about the recording, then by gain, then those
// without a gain, then notes.
void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded);

}  // namespace stepscope
