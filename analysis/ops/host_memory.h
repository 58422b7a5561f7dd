// IsHostMemory(): true if a copy reads or writes the host's memory, pinned or
// not.
#pragma once

#include <stepscope/trace.h>

namespace stepscope {

constexpr bool IsHostMemory(MemoryKind kind) {
  return kind == MemoryKind::kPageable || kind == MemoryKind::kPinned ||
         kind == MemoryKind::kHost;
}

}  // namespace stepscope
