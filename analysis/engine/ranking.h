// Which findings are told, how loudly and in what order (rules.md 2.5).
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

// Sets severities, withdraws gains where the recording cannot be trusted,
// mutes findings whose time another one owns (their ids go to `superseded`) and
// sorts: trust first, then by gain, then those without a gain, then notes.
void Rank(const AnalysisContext& context, std::vector<Found>& found,
          std::vector<std::string>& superseded);

}  // namespace stepscope
