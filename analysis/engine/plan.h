// The plan: the shortest list of changes, replayed together, that comes within
// 5 % of the best step they can reach.
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// `found` in any order; those without edits or without a predicted gain are
// passed over. The plan is empty where replay is not valid or nothing helps.
Plan MakePlan(const AnalysisContext& context,
              const std::vector<SizedFinding>& found);

}  // namespace stepscope
