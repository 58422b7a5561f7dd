// Protection of process-wide state against fork(): one mutex for what all
// sessions of a process share, and a count that tells a child from its parent.
#pragma once

#include <cstdint>
#include <mutex>

namespace stepscope {

// Guards the shared state outside the hot path: which session records, which
// loaders exist. It is held across fork(), so that a child never finds it
// locked. Hold it briefly and take no other lock under it.
std::mutex& SharedMutex();

// The number of forks between the process that first called it and this one. A
// changed number means that this is a child, in which the parent's threads and
// files must be left alone. One relaxed load after the first call.
uint64_t ForkCount() noexcept;

}  // namespace stepscope
