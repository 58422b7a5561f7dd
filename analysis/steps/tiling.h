// The tiled spans of steps: from the end of the previous step's last device
// work (or its host end, if later) to the end of this one's, so that steps
// cover the timeline without gaps. Without device work they are the host
// windows.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "steps/step_window.h"

namespace stepscope {

// Fills `tiled` from `host`. REQUIRES: windows are in time order.
void Tile(const Trace& trace, std::vector<StepWindow>& windows);

}  // namespace stepscope
