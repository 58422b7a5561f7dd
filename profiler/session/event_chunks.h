// Chunks: the memory of the slots. A chunk is mapped with its pages present, so
// that a hook never waits for a page fault, and zeroed, so that an unwritten
// slot reads as RecordLength::kNone.
#pragma once

#include <stepscope/slot.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace stepscope {

inline constexpr size_t kChunkBytes = size_t{64} << 10;

// In front of its slots, a chunk has a link to the thread's previous chunk.
struct Chunk {
  Chunk* previous;
  Slot* used_end;  // null while the chunk is the thread's last
  uint64_t unused[2];
  Slot slots[kChunkBytes / sizeof(Slot) - 1];

  Slot* begin() { return slots; }
  Slot* end() { return slots + kChunkBytes / sizeof(Slot) - 1; }
};
static_assert(sizeof(Chunk) == kChunkBytes);

// Returns null if the system has no memory.
Chunk* MapChunk() noexcept;
void UnmapChunks(Chunk* last) noexcept;  // and all before it

// Unmaps adjacent chunks that were never used, given as first chunk and number.
void UnmapUnused(std::pair<Chunk*, size_t> chunks) noexcept;

// Chunks that are mapped when a window opens, so that hooks usually need not
// map any. Mapping a chunk (64 KiB of fresh pages) takes 24 us on a virtual
// machine, which is 12 ns for each operator that fits into it.
class ReadyChunks {
 public:
  // REQUIRES: no thread calls Take() meanwhile.
  void Fill(size_t chunks) noexcept;
  // Returns the chunks that Take() left, as first chunk and number. REQUIRES:
  // no thread calls Take() meanwhile.
  std::pair<Chunk*, size_t> Drain() noexcept;

  // Returns null if no chunk is left. Called from any thread, without a lock.
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
