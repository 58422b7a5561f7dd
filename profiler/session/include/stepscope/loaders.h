// The loaders of this process and their worker threads. Batches
// (stepscope/batches.h) registers them. The Session puts those that a window
// waited for into the Trace, and the host collector reads the CPU time of their
// threads.
#pragma once

#include <stepscope/batches.h>
#include <stepscope/clock.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stepscope {

// Fills `tids` with the worker threads of the existing loaders, and returns
// their number, which may be larger than `tids`.
size_t LoaderThreads(std::span<int64_t> tids);

// The loaders that were waited for at or after `since`, each once, including
// those that were destroyed meanwhile, which are then forgotten.
std::vector<LoaderFacts> TakeLoadersWaitedFor(Ticks since);

}  // namespace stepscope
