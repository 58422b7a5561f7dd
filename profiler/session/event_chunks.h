// Chunks: the memory behind the slots. They are mapped with their pages
// present, so that a hook never waits for a page fault, and zeroed, so that an
// unwritten slot reads as RecordLength::kNone.
#pragma once

#include <stepscope/slot.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

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

// Unmaps adjacent chunks that were never used: the first and their number.
void UnmapUnused(std::pair<Chunk*, size_t> chunks) noexcept;

// Chunks that are mapped when a window opens, so that hooks of a usual window
// map none: 64 KiB of fresh pages take 24 us on a virtual machine, which is 12
// ns for each operator that fits.
class ReadyChunks {
 public:
  // REQUIRES: nobody calls Take().
  void Fill(size_t chunks) noexcept;
  // The chunks that Take() left: the first and their number. REQUIRES: as
  // Fill().
  std::pair<Chunk*, size_t> Drain() noexcept;

  // Null if there is none left. Any thread, without a lock.
  Chunk* Take() noexcept {
    if (next_.load(std::memory_order_relaxed) >= count_) return nullptr;
    const size_t at = next_.fetch_add(1, std::memory_order_relaxed);
    return at < count_ ? first_ + at : nullptr;
  }

 private:
  Chunk* first_ = nullptr;
  size_t count_ = 0;
  std::atomic<size_t> next_{0};
};

}  // namespace stepscope
