// DrawDetails(): what a page shows of one Trace besides its Report.
#pragma once

#include <stepscope/page.h>

#include "context/analysis_context.h"

namespace stepscope {

// `report` is that of `context`, with its path_slices. Never fails.
PageDetails DrawDetails(const AnalysisContext& context, const Report& report);

}  // namespace stepscope
