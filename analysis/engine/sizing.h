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
  // If the gain is a bound: removes what the change could at best.
  std::optional<Edit> at_best = {};
  // As in Found:
  bool regardless = false;
  bool beyond_noise = false;
  FindingSeverity at_most = FindingSeverity::kCritical;
  bool asks = false;
  // The gain counts after the change of this finding; "": counts by itself.
  std::string after = {};
};

// Chooses among the alternatives of `found`, and fills in the gain and the
// wording that goes with it, as the members of Found describe. nullopt if the
// change is not worth proposing, because not even the first alternative of a
// ladder is.
std::optional<SizedFinding> Size(const AnalysisContext& context, Found found);

// The same for a finding that cannot be replayed: its gain is only a bound.
SizedFinding SizeByBound(Found found);

}  // namespace stepscope
