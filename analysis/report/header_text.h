// The first lines of the text report: what was recorded, how long a step takes
// and what it spends its time on.
#pragma once

#include <stepscope/report.h>

#include "report/layout/text_page.h"

namespace stepscope {

// "stepscope  resnet18  10 steps  CPU only, 2 cores".
void PrintTitle(const Report& report, TextPage& page);

// The mean step by cause and phase; without steps, the whole recording.
void PrintStepBreakdown(const Report& report, TextPage& page);

}  // namespace stepscope
