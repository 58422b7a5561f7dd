// Sizing: the gain of a change, predicted by replay.
#pragma once

#include <stepscope/report.h>

#include <optional>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "edit/edit.h"

namespace stepscope {

// The gain of `edit` in ms per step, between 0 and the step. The likely range
// covers the uncertainty of the model and the noise of the steps. REQUIRES:
// replay is valid.
Gain PredictGain(const AnalysisContext& context, const Edit& edit);

// The same for changes that may also lose: negative values are losses.
Gain PredictDifference(const AnalysisContext& context, const Edit& edit);

// A finding with its gain, and the edits that make its change.
struct SizedFinding {
  Finding finding;
  std::vector<Edit> edits = {};  // alternatives, the proposed one first
  // As in Found:
  bool regardless = false;
  bool beyond_noise = false;
  FindingSeverity at_most = FindingSeverity::kCritical;
  bool asks = false;
  // The finding after whose change it gains this; "": its gain stands alone.
  std::string after = {};
};

// Chooses among the alternatives of `found`, fills in the gain and the words
// that go with it, as the fields of Found say. Nothing if the change is not
// worth proposing: no rung of a ladder holds.
std::optional<SizedFinding> Size(const AnalysisContext& context, Found found);

// The same where nothing can be replayed.
SizedFinding SizeByBound(Found found);

}  // namespace stepscope
