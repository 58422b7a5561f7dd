// Tells whether this process is a forked child of one that used CUPTI. CUDA
// does not work after a fork, so in the child the collector calls neither CUPTI
// nor the driver and takes no lock that the parent may have held.
#pragma once

namespace stepscope {

// Registers the pthread_atfork() handler, once per process.
void WatchForks();

// True in a child forked after WatchForks(). One relaxed load.
bool InForkedChild() noexcept;

}  // namespace stepscope
