// Which findings are reported, how loudly and in what order.
#pragma once

#include <stepscope/report.h>

#include <vector>

#include "context/analysis_context.h"
#include "engine/sizing.h"

namespace stepscope {

// Sets severities, withdraws gains where the recording cannot be trusted,
// mutes findings whose time another one owns (their ids go to `superseded`) and
// sorts: trust first, then by gain, then those without a gain, then notes.
void Rank(const AnalysisContext& context, std::vector<SizedFinding>& found,
          std::vector<std::string>& superseded);

}  // namespace stepscope
