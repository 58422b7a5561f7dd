#include "buffer_pool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cupti_fork.h"

namespace stepscope {
namespace {

// CUPTI needs 8; a whole cache line avoids false sharing.
constexpr size_t kAlignment = 64;
constexpr int64_t kSmallestBlock = 4096;
// Room for some hundred records. That is enough, because recording is switched
// off soon after the first discard block.
constexpr size_t kDiscardBytes = size_t{64} << 10;
constexpr size_t kMostDiscardBlocks = 64;

// Used if there is no memory even for a discard block. CUPTI's threads then
// overwrite each other's records, which nobody reads.
alignas(kAlignment) uint8_t g_last_resort[kDiscardBytes];

uint8_t* LastResort(size_t* bytes) {
  *bytes = sizeof(g_last_resort);
  return g_last_resort;
}

}  // namespace

void BufferPool::Free::operator()(uint8_t* data) const { std::free(data); }

void BufferPool::Open(int64_t max_bytes, int64_t block_bytes,
                      Overflow overflow) {
  const std::lock_guard lock(mutex_);
  const auto bytes = static_cast<size_t>(std::max(block_bytes, kSmallestBlock));
  block_bytes_ = bytes / kAlignment * kAlignment;
  max_blocks_ = std::max<size_t>(
      1, static_cast<size_t>(std::max<int64_t>(max_bytes, 0)) / block_bytes_);
  // Free blocks of another size cannot be reused.
  std::erase_if(blocks_, [&](const Block& block) {
    return block.state == State::kFree && !is_usable(block);
  });
  // Reserved here, so that Request(), which runs on a thread of CUPTI, need not
  // grow these vectors.
  blocks_.reserve(blocks_.size() + max_blocks_ + kMostDiscardBlocks);
  full_.reserve(blocks_.capacity());
  late_.reserve(blocks_.capacity());
  ++window_;
  open_ = true;
  discards_ = overflow.discard;
  overflow_ = std::move(overflow);
  refused_ = 0;
  discarded_ = 0;
  running_out_ = false;
}

// Allocates without the lock, because CUPTI's threads may need it meanwhile.
void BufferPool::Prepare(int64_t blocks) {
  for (;;) {
    size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto usable = [&](const Block& block) { return is_usable(block); };
      const auto ready = [&](const Block& block) {
        return is_usable(block) && block.state == State::kFree;
      };
      if (!open_ || blocks_.size() == blocks_.capacity() ||
          std::count_if(blocks_.begin(), blocks_.end(), ready) >= blocks ||
          std::count_if(blocks_.begin(), blocks_.end(), usable) >=
              static_cast<int64_t>(max_blocks_)) {
        return;
      }
      bytes = block_bytes_;
    }
    Block block;
    block.data.reset(
        static_cast<uint8_t*>(std::aligned_alloc(kAlignment, bytes)));
    block.bytes = bytes;
    if (block.data == nullptr) return;
    std::memset(block.data.get(), 0, bytes);  // makes the kernel map its pages
    const std::lock_guard lock(mutex_);
    if (!open_ || bytes != block_bytes_ ||
        blocks_.size() == blocks_.capacity()) {
      return;
    }
    blocks_.push_back(std::move(block));
  }
}

BufferPool::Window BufferPool::Close() {
  const std::lock_guard lock(mutex_);
  Window closed;
  closed.id = window_;
  closed.full = std::move(full_);
  closed.refused = refused_;
  closed.discarded = discarded_;
  // Blocks that CUPTI has not returned cannot be read yet, because CUPTI may
  // still write to them.
  for (Block& block : blocks_) {
    if (block.state == State::kFull) block.state = State::kDecoding;
    if (block.state == State::kOut && !block.is_discard &&
        block.window == window_) {
      ++closed.still_out;
    }
  }
  if (closed.still_out > 0) awaited_.push_back(closed.id);
  full_.clear();
  refused_ = 0;
  discarded_ = 0;
  overflow_.count = nullptr;  // it must not outlive the window
  open_ = false;
  running_out_ = false;
  return closed;
}

bool BufferPool::TakeLate(Window* window) {
  const std::lock_guard lock(mutex_);
  std::erase_if(late_, [&](const Late& late) {
    if (late.window != window->id) return false;
    Find(late.buffer.data)->state = State::kDecoding;
    window->full.push_back(late.buffer);
    --window->still_out;
    return true;
  });
  return window->still_out == 0;
}

void BufferPool::Return(const Window& window) {
  const std::lock_guard lock(mutex_);
  for (const CuptiBuffer& buffer : window.full) {
    Block* block = Find(buffer.data);
    if (block != nullptr && block->state == State::kDecoding) {
      block->state = State::kFree;
    }
  }
  std::erase(awaited_, window.id);
  std::erase_if(late_, [&](const Late& late) {
    if (late.window != window.id) return false;
    Find(late.buffer.data)->state = State::kFree;
    return true;
  });
}

// Frees only free blocks. Blocks that CUPTI holds, or that are being decoded,
// stay.
void BufferPool::Trim() {
  const std::lock_guard lock(mutex_);
  std::erase_if(blocks_,
                [](const Block& block) { return block.state == State::kFree; });
}

// Returns null if there is no memory. Open() has reserved the room in blocks_.
BufferPool::Block* BufferPool::Add(size_t bytes) {
  if (blocks_.size() == blocks_.capacity()) return nullptr;
  auto* data = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, bytes));
  if (data == nullptr) return nullptr;
  Block block;
  block.data.reset(data);
  block.bytes = bytes;
  blocks_.push_back(std::move(block));
  return &blocks_.back();
}

uint8_t* BufferPool::GiveOut(Block* block, size_t* bytes) {
  block->state = State::kOut;
  block->window = window_;
  block->valid_bytes = 0;
  *bytes = block->bytes;
  return block->data.get();
}

// Each request gets its own discard block: CUPTI may link the records in a
// block, so two threads must not share one.
uint8_t* BufferPool::Refuse(size_t* bytes) {
  ++refused_;
  running_out_ = true;
  if (!overflow_.discard) return nullptr;
  Block* discard = nullptr;
  for (Block& block : blocks_) {
    if (block.is_discard && block.state == State::kFree) discard = &block;
  }
  if (discard == nullptr) discard = Add(kDiscardBytes);
  if (discard == nullptr) return LastResort(bytes);
  discard->is_discard = true;
  return GiveOut(discard, bytes);
}

// Must not throw, because CUPTI calls this on one of its own threads or one of
// the program's.
uint8_t* BufferPool::Request(size_t* bytes) noexcept {
  *bytes = 0;
  if (InForkedChild()) return discards_ ? LastResort(bytes) : nullptr;
  const std::lock_guard lock(mutex_);
  // A linear search is enough: there are a few hundred blocks, and a request
  // comes only once per thousands of records.
  Block* free = nullptr;
  size_t in_use = 0;
  for (Block& block : blocks_) {
    if (block.is_discard) continue;
    if (block.state == State::kFree && is_usable(block)) {
      free = &block;
    } else {
      ++in_use;
    }
  }
  if (!open_ || in_use >= max_blocks_) return Refuse(bytes);
  if (free == nullptr) free = Add(block_bytes_);
  if (free == nullptr) return Refuse(bytes);
  // The last eighth is reserved for records that arrive until recording is
  // switched off.
  if (overflow_.discard && max_blocks_ > 1 &&
      in_use + 1 > max_blocks_ - std::max<size_t>(1, max_blocks_ / 8)) {
    running_out_ = true;
  }
  return GiveOut(free, bytes);
}

// A block that is completed between windows becomes free, unless its window is
// still to be decoded.
void BufferPool::Complete(uint8_t* data, size_t valid_bytes) noexcept {
  if (data == nullptr || InForkedChild()) return;
  std::function<int64_t(const CuptiBuffer&)> count;
  {
    const std::lock_guard lock(mutex_);
    Block* block = Find(data);
    if (block == nullptr || block->state != State::kOut) return;
    valid_bytes = std::min(valid_bytes, block->bytes);
    if (!block->is_discard) {
      const bool is_late = !open_ && std::find(awaited_.begin(), awaited_.end(),
                                               block->window) != awaited_.end();
      if (valid_bytes == 0 || (!open_ && !is_late)) {
        block->state = State::kFree;
        return;
      }
      block->state = State::kFull;
      block->valid_bytes = valid_bytes;
      if (is_late) {
        late_.push_back({block->window, {data, valid_bytes}});
      } else {
        full_.push_back({data, valid_bytes});
      }
      return;
    }
    count = overflow_.count;
  }
  // For all other threads the block still belongs to CUPTI, so its records can
  // be read without the lock.
  const int64_t records =
      count && valid_bytes > 0 ? count({data, valid_bytes}) : 0;
  const std::lock_guard lock(mutex_);
  discarded_ += records;
  if (Block* block = Find(data)) block->state = State::kFree;
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

int64_t BufferPool::blocks_in_use() const {
  const std::lock_guard lock(mutex_);
  return std::count_if(blocks_.begin(), blocks_.end(), [](const Block& block) {
    return block.state != State::kFree;
  });
}

BufferPool::Block* BufferPool::Find(const uint8_t* data) {
  for (Block& block : blocks_) {
    if (block.data.get() == data) return &block;
  }
  return nullptr;
}

// Never destroyed, because CUPTI may call back while the process ends.
BufferPool& ProcessPool() {
  static BufferPool* const pool = new BufferPool;
  return *pool;
}

}  // namespace stepscope
