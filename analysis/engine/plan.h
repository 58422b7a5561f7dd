// The plan: what to change first.
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// The shortest list of changes, replayed together, that comes within 5 % of the
// best step they can reach. Picks greedily: in each round the change that
// shortens the replayed step most, on top of those picked before. `found` may
// be in any order; findings without edits, without a predicted gain, or of
// severity note are ignored. The plan is empty where replay is not valid or no
// change helps.
Plan MakePlan(const AnalysisContext& context,
              const std::vector<SizedFinding>& found);

// Fills plan.at_most and plan.order of a report whose findings are ranked. An
// upper bound of medium severity or more is no reason to leave a change out:
// replay may not know the change, yet it may be the first to make.
void OrderPlan(Report& report);

}  // namespace stepscope
