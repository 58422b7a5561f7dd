// The head of the text report: what was recorded, how long a step takes and
// where that goes.
#pragma once

#include <stepscope/report.h>

#include "report/page.h"

namespace stepscope {

void Title(const Report& report, Page& page);
// Of the mean step; without steps, of the whole recording.
void StepSplit(const Report& report, Page& page);

}  // namespace stepscope
