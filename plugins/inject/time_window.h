// A window that is a span of time. A thread of the injection sleeps until the
// window begins, and drives the Profile. The program's main thread counts as
// the training thread.
#pragma once

#include "window_options.h"

namespace stepscope {

// Starts the thread. At the program's exit an open window ends and its files
// are written. REQUIRES: called once.
void StartTimeWindow(const WindowOptions& options);

}  // namespace stepscope
