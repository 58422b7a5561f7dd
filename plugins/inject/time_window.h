// A window that is a span of time. A thread of the injection sleeps until it
// begins, and drives the Profile; the program's main thread counts as the one
// that trains.
#pragma once

#include "window_options.h"

namespace stepscope {

// Starts the thread. At the program's exit an open window ends and its files
// are written. REQUIRES: called once.
void StartTimeWindow(const WindowOptions& options);

}  // namespace stepscope
