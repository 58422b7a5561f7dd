// What the rules about collectives say alike.
#pragma once

#include <functional>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "device/collectives.h"

namespace stepscope {

// The three of those `wanted` that are exposed longest become the finding's
// examples, and the first says where.
void Illustrate(const AnalysisContext& m,
                const std::function<bool(const Collective&)>& wanted,
                Finding& finding);

// The answer of a rule about collectives to a Trace without any: clean, but
// for a job of several ranks, whose collectives were not recorded then.
Verdict AnswerWithoutCollectives(const AnalysisContext& m);

}  // namespace stepscope
