// Which loaders feed training threads of this process, and which threads work
// for them. Batches (stepscope/batches.h) registers them; the Session puts those
// that were waited for into the Trace, and the host collector watches their
// threads.
#pragma once

#include <stepscope/batches.h>
#include <stepscope/clock.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stepscope {

// Fills `tids` with the worker threads of the loaders that live now; returns
// how many there are, which may be more than fit.
size_t LoaderThreads(std::span<int64_t> tids);

// The loaders that were waited for at or after `since`, ended ones included,
// each once; forgets those that have ended.
std::vector<LoaderFacts> TakeLoadersWaitedFor(Ticks since);

}  // namespace stepscope
