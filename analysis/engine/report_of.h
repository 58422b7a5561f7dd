// Analyze() after its first step: from an AnalysisContext to a Report.
// Compare(), WhatIf and DigestRank() start here, too.
#pragma once

#include <stepscope/report.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

// No report lists more ops.
inline constexpr size_t kTopOps = 50;

// The alternatives that each finding proposes, the best one first.
using EditsById = std::map<std::string, std::vector<Edit>>;

// Runs all rules and sizes, ranks and plans what they find. `edits`, if not
// null, receives the edits of the findings in the report. Never fails.
Report ReportOf(const AnalysisContext& context, EditsById* edits = nullptr);

}  // namespace stepscope
