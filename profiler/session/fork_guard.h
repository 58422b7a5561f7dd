// What a fork may find: one mutex for the few things all sessions of a process
// share, and a count that tells a child from its parent.
#pragma once

#include <cstdint>
#include <mutex>

namespace stepscope {

// Guards shared state off the hot path (who records, which loaders live). It is
// held across fork(), so a child never finds it locked. Hold it briefly and
// take no other lock under it.
std::mutex& SharedMutex();

// How many forks lie between the process that first asked and this one. A
// number that changed means: this is a child, the parent's threads and files
// are not ours. One relaxed load after the first call.
uint64_t ForkCount() noexcept;

}  // namespace stepscope
