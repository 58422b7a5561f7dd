// Protects process-wide state against fork(): one mutex for the state that all
// sessions of a process share, and a count that tells a child from its parent.
#pragma once

#include <cstdint>
#include <mutex>

namespace stepscope {

// Guards shared state outside the hot path: which session records, and which
// loaders exist. The mutex is held across fork(), so that a child never finds
// it locked. Hold it briefly and take no other lock meanwhile.
std::mutex& SharedMutex();

// Returns the number of forks between the process that first called this
// function and the calling one. If the number has changed, the caller runs in a
// child, which must not touch the parent's threads and files. One relaxed load
// after the first call.
uint64_t ForkCount() noexcept;

}  // namespace stepscope
