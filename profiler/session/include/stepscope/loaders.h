// The loaders of this process and their worker threads. Batches
// (stepscope/batches.h) registers them. The Session puts the loaders that a
// window waited for into the Trace, and the host collector reads the CPU time
// of their threads.
#pragma once

#include <stepscope/batches.h>
#include <stepscope/clock.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stepscope {

// Fills `tids` with the worker threads of the existing loaders. Returns the
// number of threads, which may be larger than `tids`.
size_t LoaderThreads(std::span<int64_t> tids);

// Returns the loaders that were waited for at or after `since`, each once,
// including loaders that were destroyed since then. The latter are forgotten.
std::vector<LoaderFacts> TakeLoadersWaitedFor(Ticks since);

}  // namespace stepscope
