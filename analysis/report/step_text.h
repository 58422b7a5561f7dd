// Which steps the means are taken over, and peak memory, in words. `analyze`
// and `info` share them.
#pragma once

#include <stepscope/report.h>
#include <stepscope/summary.h>

#include <string>
#include <vector>

namespace stepscope {

// "mean of 12 steady steps out of 15; excluded: 3 with a checkpoint or heavy
// logging (7, 12, 17)"; empty if all steps are steady.
std::string AveragedStepsText(const Report& report);

// One line per device, for the step with the highest peak: "gpu 0: at most
// 3.2 GB in use of 4 GB reserved, in step 5, at aten::convolution".
std::vector<std::string> MemoryPeakLines(
    const std::vector<MemorySummary>& memory);

}  // namespace stepscope
