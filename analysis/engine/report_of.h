// The main part of Analyze(): from an AnalysisContext to a Report. Compare(),
// WhatIf and DigestRank() use it, too.
#pragma once

#include <stepscope/report.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

// The maximum number of ops in a report.
inline constexpr size_t kTopOps = 50;

// The alternatives that each finding proposes, the best one first.
using EditsById = std::map<std::string, std::vector<Edit>>;

// Runs all rules and sizes, ranks and plans what they find. `edits`, if not
// null, receives the edits of the findings in the report. Never fails.
Report ReportOf(const AnalysisContext& context, EditsById* edits = nullptr);

}  // namespace stepscope
