// Records allocations and releases. LibTorch's allocators report them to the
// profiler in the calling thread's debug info, where only one profiler can be.
#pragma once

#include <memory>

namespace stepscope {

class MemoryHook;

// Installs a hook for the calling thread. Autograd's threads inherit it in each
// backward pass. Returns null if another profiler is installed. Until the hook
// is removed, torch.profiler cannot be started on this thread: it raises.
std::shared_ptr<MemoryHook> StartMemoryHook();

// Removes the hook. Returns false if it was gone already, because a debug scope
// that was open when the hook started has closed and removed it; some events
// are then missing. Also returns false on another thread.
bool StopMemoryHook(const std::shared_ptr<MemoryHook>& hook);

}  // namespace stepscope
