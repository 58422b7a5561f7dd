// Which steps were averaged and what they held in memory, in words.
#pragma once

#include <stepscope/report.h>
#include <stepscope/summary.h>

#include <string>
#include <vector>

namespace stepscope {

// "averaged over 12 steady steps of 15; left out: 3 with a checkpoint (7, 12,
// 17)"; empty if all were averaged.
std::string StepsInWords(const Report& report);

// For each device the step with the highest peak: "gpu 0: at most 3.2 GB in use
// of 4 GB reserved, in step 5, at aten::convolution".
std::vector<std::string> PeaksInWords(const std::vector<MemorySummary>& memory);

}  // namespace stepscope
