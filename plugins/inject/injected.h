// An unmodified program under injection: from its first NVTX or CUDA call to
// its end. Made once per process and never destroyed; any thread may call it.
// It never throws, and whatever fails is one line on stderr.
#pragma once

namespace stepscope {

// Reads the environment and arranges for the window. Does nothing from the
// second call on, and in a forked child.
void StartInjected() noexcept;

}  // namespace stepscope
