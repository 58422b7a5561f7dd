// Records allocations and releases, which LibTorch's allocators report to the
// profiler in the calling thread's debug info. Only one profiler can be there.
#pragma once

#include <absl/status/statusor.h>

#include <memory>

namespace stepscope {

class MemoryHook;

// Installs a hook for the calling thread; autograd's threads inherit it in each
// backward pass. FailedPrecondition if another profiler is there.
absl::StatusOr<std::shared_ptr<MemoryHook>> StartMemoryHook();

// Removes the hook. False if it was gone: a debug scope that was open when it
// started has closed and removed it, so events are missing; or this is another
// thread.
bool StopMemoryHook(const std::shared_ptr<MemoryHook>& hook);

}  // namespace stepscope
