#include "event_chunks.h"

#include <sys/mman.h>

#include <algorithm>

namespace stepscope {

namespace {

// MAP_POPULATE: hooks must not take page faults. MAP_ANONYMOUS memory is zero,
// which is what an unwritten slot must be (see the header).
Chunk* Map(size_t chunks) noexcept {
  void* memory = mmap(nullptr, chunks * kChunkBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Chunk*>(memory);
}

}  // namespace

Chunk* MapChunk() noexcept { return Map(1); }

void UnmapChunks(Chunk* last) noexcept {
  while (last != nullptr) {
    Chunk* previous = last->previous;
    munmap(last, kChunkBytes);
    last = previous;
  }
}

// Chunks of one Fill() are adjacent, so the unused rest is one mapping; those
// that threads took are unmapped one by one.
void UnmapUnused(std::pair<Chunk*, size_t> chunks) noexcept {
  if (chunks.second > 0) munmap(chunks.first, chunks.second * kChunkBytes);
}

void ReadyChunks::Fill(size_t chunks) noexcept {
  first_ = chunks == 0 ? nullptr : Map(chunks);
  count_ = first_ == nullptr ? 0 : chunks;
  next_.store(0, std::memory_order_relaxed);
}

std::pair<Chunk*, size_t> ReadyChunks::Drain() noexcept {
  // Take() goes on counting when no chunk is left.
  const size_t taken = std::min(next_.load(std::memory_order_relaxed), count_);
  const std::pair<Chunk*, size_t> rest(first_ + taken, count_ - taken);
  first_ = nullptr;
  count_ = 0;
  return rest;
}

}  // namespace stepscope
