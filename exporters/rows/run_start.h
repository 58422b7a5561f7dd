// The start time in the name of a run.
#pragma once

#include <string_view>

namespace stepscope {

// Returns the start time in a RUN of the log directory, a local time:
// "2026_01_31_14_05_09" for "resnet_2026_01_31_14_05_09". "" if there is none.
std::string_view StartOfRun(std::string_view run);

}  // namespace stepscope
