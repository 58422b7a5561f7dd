// DrawSteps(): the steps that a page draws, as lanes of coloured blocks.
#pragma once

#include <stepscope/page.h>

#include "context/analysis_context.h"

namespace stepscope {

// Fills `steps`, `examples` and `names` of `details`: the steady step whose
// length is nearest to the mean, and the steps of the findings' first examples,
// at most kDrawnSteps together. The work is linear in the rows of the Trace.
inline constexpr size_t kDrawnSteps = 5;
void DrawSteps(const AnalysisContext& context, const Report& report,
               PageDetails& details);

}  // namespace stepscope
