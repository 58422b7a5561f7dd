// Coverage: every large cause is explained. For each cause that takes much of
// the step, either the findings could save at least half of its time, or the
// report says why it offers no change.
#pragma once

#include <stepscope/report.h>

#include <span>
#include <string_view>

#include "timeline/causes.h"

namespace stepscope {

// The causes whose time the rule `id` may explain, the main one first. Empty
// for rules about the recording itself or about memory, which save no time, and
// for unknown rules.
std::span<const Cause> CausesOf(std::string_view id);

// Fills report.coverage from the time splits and the findings. If a rule found
// nothing although its main cause is large and unanswered, that does not prove
// that all is well, so the rule moves from report.clean to `looked`. Call once,
// after ranking.
void ExplainCauses(Report& report);

}  // namespace stepscope
