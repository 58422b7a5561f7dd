#include "event_chunks.h"

#include <sys/mman.h>

#include <algorithm>

namespace stepscope {

namespace {

// MAP_POPULATE keeps hooks from taking page faults. MAP_ANONYMOUS memory is
// zero, as the memory of unwritten slots must be (see the header).
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

// The chunks of one Fill() are adjacent, so those that were never used form one
// mapping. Chunks that threads took are unmapped one by one.
void UnmapUnused(std::pair<Chunk*, size_t> chunks) noexcept {
  if (chunks.second > 0) munmap(chunks.first, chunks.second * kChunkBytes);
}

void ReadyChunks::Fill(size_t chunks) noexcept {
  first_ = chunks == 0 ? nullptr : Map(chunks);
  count_ = first_ == nullptr ? 0 : chunks;
  next_.store(0, std::memory_order_relaxed);
}

std::pair<Chunk*, size_t> ReadyChunks::Drain() noexcept {
  // Take() keeps counting after the last chunk.
  const size_t taken = std::min(next_.load(std::memory_order_relaxed), count_);
  const std::pair<Chunk*, size_t> rest(first_ + taken, count_ - taken);
  first_ = nullptr;
  count_ = 0;
  return rest;
}

}  // namespace stepscope
