// Sizing: what a change is worth, as replay predicts it.
#pragma once

#include <stepscope/report.h>

#include "context/analysis_context.h"
#include "edit/edit.h"

namespace stepscope {

// The gain of `edit` as replay predicts it, with the range that what the model
// cannot know and the noise of the steps leave. REQUIRES: replay speaks.
Gain PredictGain(const AnalysisContext& context, const Edit& edit);

// The same for changes that may also lose: nothing is cut off at 0.
Gain PredictDifference(const AnalysisContext& context, const Edit& edit);

// A finding with its gain filled in: predicted by `edit` where replay speaks
// and `edit` changes something, else at most `bound_ns` per step.
Finding Sized(const AnalysisContext& context, Finding finding, const Edit& edit,
              double bound_ns);

}  // namespace stepscope
