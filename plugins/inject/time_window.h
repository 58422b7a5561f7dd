// A window that is a stretch of time. A thread of our own sleeps until it
// begins, and drives the Profile: the program's main thread is the one that is
// taken for training.
#pragma once

#include "window_options.h"

namespace stepscope {

// Starts the thread; at the program's exit the window ends at the latest, and
// its files are written. REQUIRES: called once.
void StartTimeWindow(const WindowOptions& options);

}  // namespace stepscope
