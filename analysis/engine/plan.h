// The plan: what to change first.
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// The shortest list of changes, replayed together, that comes within 5 % of the
// best step found. `found` may be in any order; findings without edits or
// without a predicted gain, those that only ask for a fact, and notes that are
// hints are ignored. The plan is empty where replay is not valid or no change
// helps. plan.cc says how the changes are chosen. Where the plan takes another
// variant of a change than the finding prints, the finding's evidence says so.
Plan MakePlan(const AnalysisContext& context, std::vector<SizedFinding>& found);

// A note in the plan becomes advice: status kWarning, listed behind the
// findings that gain by themselves, and its evidence says what it gains after
// the changes before it.
void RaisePlanned(const Plan& plan, std::vector<SizedFinding>& found);

// Fills plan.at_most and plan.order of a report whose findings are ranked.
// Findings with only an upper bound join from severity medium on: replay cannot
// model such a change, but it may still be the first one to make.
void OrderPlan(Report& report);

}  // namespace stepscope
