// Which changes to make together, and in which order.
#pragma once

#include <vector>

#include "context/analysis_context.h"
#include "edit/edit.h"
#include "engine/sizing.h"

namespace stepscope {

// One change of a plan, on top of those before it.
struct PlannedChange {
  const SizedFinding* found = nullptr;
  const Edit* variant = nullptr;  // the change itself, one of found->edits
  Edit edit = {};                 // with all changes before it
  double step_ns = 0;             // the step with all of them
  bool needs_next = false;        // gains nothing without the next one
};

// Picks greedily: in each round the change that shortens the replayed step
// most. Where no single change does, it looks for changes that do so together:
// while the host is late a faster kernel gains nothing, and the other way
// round. A note joins only if it then gains 3 % of the step, and more than
// noise: a finding too small to report becomes one once others have made way
// for it.
//
// `found` may be in any order. Findings without edits or without a predicted
// gain, those that only ask for a fact, and notes that are hints are ignored.
// Empty if no change helps. The result points into `found`. REQUIRES:
// context.replay.check().valid.
std::vector<PlannedChange> ChooseChanges(
    const AnalysisContext& context, const std::vector<SizedFinding>& found);

}  // namespace stepscope
