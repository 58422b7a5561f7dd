#include "event_chunks.h"

#include <sys/mman.h>

namespace stepscope {

Chunk* MapChunk() noexcept {
  void* memory = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Chunk*>(memory);
}

void UnmapChunks(Chunk* last) noexcept {
  while (last != nullptr) {
    Chunk* previous = last->previous;
    munmap(last, kChunkBytes);
    last = previous;
  }
}

}  // namespace stepscope
