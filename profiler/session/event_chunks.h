// Chunks: the memory behind the slots. Mapped from the system in one piece and
// with its pages present, so that a hook never waits for a page fault; zero, so
// that what was not written reads as RecordLength::kNone.
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

// Chunks that were never linked: the first and how many follow each other.
void UnmapUnused(std::pair<Chunk*, size_t> chunks) noexcept;

// Chunks made ready when a window opens: fresh pages cost more than the records
// they hold (24 us for 64 KiB on a virtual machine, 12 ns for each operator in
// it), and a usual window then maps none in its hooks.
class ReadyChunks {
 public:
  // REQUIRES: nobody calls Take().
  void Fill(size_t chunks) noexcept;
  // The rest, to be unmapped: begin and number. REQUIRES: as Fill().
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
