// Coverage: nothing large goes unexplained. For each cause that takes much of
// the step, either the findings could save at least half of it, or the report
// says why it offers no change.
#pragma once

#include <stepscope/report.h>

#include <span>
#include <string_view>

#include "timeline/causes.h"

namespace stepscope {

// The causes whose time the rule `id` may explain, its main one first. Empty
// for rules about the recording itself or about memory, which save no time;
// also for an unknown rule.
std::span<const Cause> CausesOf(std::string_view id);

// Fills report.coverage from the time splits and the findings. A rule that
// found nothing, although its main cause is large and no finding is about it,
// does not prove that all is well: it moves from report.clean to `looked`. Call
// once, after ranking.
void ExplainCauses(Report& report);

}  // namespace stepscope
