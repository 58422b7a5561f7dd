// The start time in the name of a run.
#pragma once

#include <string_view>

namespace stepscope {

// The start in a RUN of the log directory: of "resnet_2026_01_31_14_05_09" the
// text "2026_01_31_14_05_09", local time. Empty if there is none.
std::string_view StartOfRun(std::string_view run);

}  // namespace stepscope
