// A window that is counted in steps, which are NVTX ranges with a given name.
// The thread that opens the first of these ranges drives the Profile, as a
// training loop would.
#pragma once

#include "window_options.h"

namespace stepscope {

// Listens for the ranges. At the program's exit an open window ends and its
// files are written. REQUIRES: called once.
void StartStepWindow(const WindowOptions& options);

}  // namespace stepscope
