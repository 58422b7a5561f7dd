// Which steps the means are taken over, and peak memory, in words. `analyze`
// and `info` share them.
#pragma once

#include <stepscope/report.h>
#include <stepscope/summary.h>

#include <string>
#include <vector>

namespace stepscope {

// Slow steps are mentioned if they raise the mean by this share.
inline constexpr double kMentionedFrac = 0.05;

// "mean of 12 steady steps out of 15; excluded: 3 with a checkpoint or heavy
// logging (7, 12, 17)"; empty if all steps are steady.
std::string AveragedStepsText(const Report& report);

// "about 0.57 ms without the profiler, ..."; empty if that is printed like the
// mean step, or unknown. Gains refer to it, so even a small difference shows.
std::string UnprofiledText(const Report& report);

// "2 slow steps raise the mean of all steps to 19 ms, against a median of 10.5
// ms: step 12 (181 ms) runs no op for 170 ms"; empty if slow steps cost less
// than 5 % of the median step.
std::string StallsText(const Report& report);

// One line per device, for the step with the highest peak: "gpu 0: at most
// 3.2 GB in use of 4 GB reserved, in step 5, at aten::convolution". Where only
// memory allocated during the recording is known, the line says so.
std::vector<std::string> MemoryPeakLines(
    const std::vector<MemorySummary>& memory);

}  // namespace stepscope
