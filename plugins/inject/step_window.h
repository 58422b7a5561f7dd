// A window counted in steps: NVTX ranges of one name. The thread that runs the
// first of them drives the Profile, as a training loop would.
#pragma once

#include "window_options.h"

namespace stepscope {

// Listens for the ranges; at the program's exit the window ends at the latest,
// and its files are written. REQUIRES: called once.
void StartStepWindow(const WindowOptions& options);

}  // namespace stepscope
