// What Analyze() does once a Trace is context.
#pragma once

#include <stepscope/report.h>

#include <map>
#include <string>
#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

// The alternatives that each finding proposes, the best one first.
using EditsById = std::map<std::string, std::vector<Edit>>;

// `edits`, where given, receives those of the findings told.
Report ReportOf(const AnalysisContext& context, EditsById* edits = nullptr);

// Each op's time outside its child ops, by name, most first: over the steady
// steps, or the whole Trace where there are no steps.
std::vector<TopOp> OpsByOwnTime(const AnalysisContext& context);

}  // namespace stepscope
