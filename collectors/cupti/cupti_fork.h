// Whether this process is a forked child of one that used CUPTI. CUDA does not
// survive a fork, so in the child the collector touches nothing: no call into
// CUPTI or the driver, no lock that the parent may have held.
#pragma once

namespace stepscope {

// Registers the pthread_atfork() handler, once per process.
void WatchForks();

// True in a child forked after WatchForks(). One relaxed load.
bool InForkedChild() noexcept;

}  // namespace stepscope
