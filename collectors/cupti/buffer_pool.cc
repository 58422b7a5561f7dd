#include "buffer_pool.h"

#include <algorithm>
#include <cstdlib>

#include "cupti_fork.h"

namespace stepscope {
namespace {

// CUPTI needs 8; a cache line avoids false sharing.
constexpr size_t kAlignment = 64;
constexpr int64_t kSmallestBlock = 4096;

}  // namespace

void BufferPool::Free::operator()(uint8_t* data) const { std::free(data); }

void BufferPool::Open(int64_t max_bytes, int64_t block_bytes) {
  const std::lock_guard lock(mutex_);
  const auto bytes = static_cast<size_t>(std::max(block_bytes, kSmallestBlock));
  block_bytes_ = bytes / kAlignment * kAlignment;
  max_blocks_ = std::max<size_t>(
      1, static_cast<size_t>(std::max<int64_t>(max_bytes, 0)) / block_bytes_);
  // Free blocks of another size cannot be used again.
  std::erase_if(blocks_, [&](const Block& block) {
    return block.state == State::kFree && block.bytes != block_bytes_;
  });
  // So that Request(), on a thread of CUPTI, need not grow these vectors.
  blocks_.reserve(blocks_.size() + max_blocks_);
  full_.reserve(blocks_.capacity());
  ++window_;
  open_ = true;
  refused_ = 0;
}

BufferPool::Window BufferPool::Close() {
  const std::lock_guard lock(mutex_);
  Window closed;
  closed.full = std::move(full_);
  closed.refused = refused_;
  // What CUPTI has not returned by now cannot be read: CUPTI may still write to
  // it.
  for (Block& block : blocks_) {
    if (block.state == State::kFull) block.state = State::kDecoding;
    if (block.state == State::kOut && block.window == window_) {
      ++closed.still_out;
    }
  }
  full_.clear();
  refused_ = 0;
  open_ = false;
  return closed;
}

void BufferPool::Return(const std::vector<CuptiBuffer>& buffers) {
  const std::lock_guard lock(mutex_);
  for (const CuptiBuffer& buffer : buffers) {
    Block* block = Find(buffer.data);
    if (block != nullptr && block->state == State::kDecoding) {
      block->state = State::kFree;
    }
  }
}

// Only free blocks: one that CUPTI holds, or that is being decoded, stays.
void BufferPool::Trim() {
  const std::lock_guard lock(mutex_);
  std::erase_if(blocks_,
                [](const Block& block) { return block.state == State::kFree; });
}

// CUPTI calls this on a thread of its own or on one of the program, so nothing
// may be thrown.
uint8_t* BufferPool::Request(size_t* bytes) noexcept {
  *bytes = 0;
  if (InForkedChild()) return nullptr;
  const std::lock_guard lock(mutex_);
  // A linear search: there are a few dozen blocks, and a request comes once per
  // megabytes of records.
  Block* free = nullptr;
  size_t in_use = 0;
  for (Block& block : blocks_) {
    if (block.state == State::kFree && block.bytes == block_bytes_) {
      free = &block;
    } else {
      ++in_use;
    }
  }
  if (!open_ || in_use >= max_blocks_) {
    ++refused_;
    return nullptr;
  }
  if (free == nullptr) {
    auto* data =
        static_cast<uint8_t*>(std::aligned_alloc(kAlignment, block_bytes_));
    if (data == nullptr) {
      ++refused_;
      return nullptr;
    }
    Block block;
    block.data.reset(data);
    block.bytes = block_bytes_;
    blocks_.push_back(std::move(block));  // reserved by Open()
    free = &blocks_.back();
  }
  free->state = State::kOut;
  free->window = window_;
  free->valid_bytes = 0;
  *bytes = free->bytes;
  return free->data.get();
}

// Completed after its window closed, a block is free again: its records would
// lie outside every window.
void BufferPool::Complete(uint8_t* data, size_t valid_bytes) noexcept {
  if (data == nullptr || InForkedChild()) return;
  const std::lock_guard lock(mutex_);
  Block* block = Find(data);
  if (block == nullptr || block->state != State::kOut) return;
  if (!open_ || valid_bytes == 0) {
    block->state = State::kFree;
    return;
  }
  block->state = State::kFull;
  block->valid_bytes = std::min(valid_bytes, block->bytes);
  full_.push_back({data, block->valid_bytes});
}

int64_t BufferPool::blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(blocks_.size());
}

int64_t BufferPool::blocks_out() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) {
    return block.state == State::kOut;
  });
}

BufferPool::Block* BufferPool::Find(const uint8_t* data) {
  for (Block& block : blocks_) {
    if (block.data.get() == data) return &block;
  }
  return nullptr;
}

// Leaked on purpose: CUPTI may call back while the process ends.
BufferPool& ProcessPool() {
  static BufferPool* const pool = new BufferPool;
  return *pool;
}

}  // namespace stepscope
