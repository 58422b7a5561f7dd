// Allocations and releases, as LibTorch's allocators report them to whatever
// holds the calling thread's profiler slot.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

namespace stepscope {

class MemoryHook;

// Puts a hook into the calling thread's slot; autograd's threads inherit it
// with each backward pass. FailedPrecondition if the slot is taken.
absl::StatusOr<std::shared_ptr<MemoryHook>> StartMemoryHook();

// Takes it out again. False if it was no longer there: a scope that was open
// when it started has closed and taken it along, so events are missing; or this
// is another thread.
bool StopMemoryHook(const std::shared_ptr<MemoryHook>& hook);

}  // namespace stepscope
