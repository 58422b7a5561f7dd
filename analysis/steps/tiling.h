// The tiled spans of steps. A step's tiled span runs from the end of the
// previous step's last device activity (or of its host window, if that is
// later) to the end of its own last one. Tiled spans follow each other without
// gaps, so their lengths add up even if the device runs behind the host. The
// exception are steps that the program marks one by one, with other work
// between them: their tiled spans start no earlier than their host windows.
// Without device activities the tiled spans are the host windows. Without
// recorded launches, if the device works on after the last step, they are equal
// parts of the time in which it works.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "steps/step_window.h"

namespace stepscope {

// Sets `tiled` of all windows from `host` and from the activities launched in
// each. REQUIRES: windows are in time order and do not overlap.
void FillTiledSpans(const Trace& trace, std::vector<StepWindow>& windows);

}  // namespace stepscope
