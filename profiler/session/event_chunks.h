// Chunks: the memory behind the slots. Mapped from the system in one piece and
// with its pages present, so that a hook never waits for a page fault; zero, so
// that what was not written reads as SlotKind::kNone.
#pragma once

#include <stepscope/slot.h>

#include <cstddef>
#include <cstdint>

namespace stepscope {

inline constexpr size_t kChunkBytes = size_t{64} << 10;

// The first slot of a chunk links it to the thread's chunk before it.
struct Chunk {
  Chunk* previous;
  Slot* used_end;  // null while the chunk is the thread's last
  uint64_t unused[2];
  Slot slots[kChunkBytes / sizeof(Slot) - 1];

  Slot* begin() { return slots; }
  Slot* end() { return slots + kChunkBytes / sizeof(Slot) - 1; }
};
static_assert(sizeof(Chunk) == kChunkBytes);

// Null if the system has no memory.
Chunk* MapChunk() noexcept;
void UnmapChunks(Chunk* last) noexcept;  // and all before it

}  // namespace stepscope
