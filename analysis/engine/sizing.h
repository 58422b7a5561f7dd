// Sizing: what a change gains, as replay predicts it.
#pragma once

#include <stepscope/report.h>

#include <optional>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "edit/edit.h"

namespace stepscope {

// The gain of `edit` as replay predicts it. The range covers what the model
// cannot know and the noise of the steps. REQUIRES: replay is valid.
Gain PredictGain(const AnalysisContext& context, const Edit& edit);

// The same for changes that may also lose: nothing is cut off at 0.
Gain PredictDifference(const AnalysisContext& context, const Edit& edit);

// A finding with its gain, and the edits that make its change.
struct SizedFinding {
  Finding finding;
  std::vector<Edit> edits = {};  // alternatives, the proposed one first
  bool regardless = false;       // as in Found
};

// Chooses among the alternatives of `found`, fills in the gain and the words
// that go with it, as the fields of Found say. Nothing if the change is not
// worth proposing: no rung of a ladder holds.
std::optional<SizedFinding> Size(const AnalysisContext& context, Found found);

// The same where nothing can be replayed.
SizedFinding SizeByBound(Found found);

}  // namespace stepscope
