// The tiled spans of steps. A step's tiled span runs from the end of the
// previous step's last device activity (or of its host window, if that is
// later) to the end of its own last one. Tiled spans cover the timeline without
// gaps, so their lengths add up even if the device runs behind the host.
// Without device activities they are the host windows.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "steps/step_window.h"

namespace stepscope {

// Sets `tiled` of all windows from `host` and from the activities launched in
// each. REQUIRES: windows are in time order and do not overlap.
void FillTiledSpans(const Trace& trace, std::vector<StepWindow>& windows);

}  // namespace stepscope
