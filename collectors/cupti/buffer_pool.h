// BufferPool: the memory that CUPTI writes its records to, in a limited number
// of blocks. Each block is tracked from CUPTI's request through its completion
// and decoding; a block that CUPTI holds is never freed and never given out
// twice. When none is free, CUPTI gets none, and the refusal is counted.
//
// A block that CUPTI still holds when its window closes is counted there. If it
// comes back during a later window it belongs to that one, because CUPTI may
// have continued to write to it; older records are clipped from the Trace by
// their times. If it comes back between windows it is free again.
//
// Any thread may call anything. CUPTI's callbacks lock a mutex once per block,
// not per record. In a forked child Request() refuses and Complete() does
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace stepscope {

// Records as CUPTI wrote them: `valid_bytes` bytes from `data` on.
struct CuptiBuffer {
  const uint8_t* data = nullptr;
  size_t valid_bytes = 0;
};

class BufferPool {
 public:
  BufferPool() = default;
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool() = default;  // REQUIRES: CUPTI holds no block

  // What remains of a closed window.
  struct Window {
    std::vector<CuptiBuffer> full;  // in the order they were completed
    int64_t refused = 0;            // requests that got no block
    int64_t still_out = 0;  // blocks of this window that CUPTI still holds
  };

  // Opens a window with blocks of `block_bytes`, together at most `max_bytes`,
  // but at least one. Memory is allocated when CUPTI requests a block.
  void Open(int64_t max_bytes, int64_t block_bytes);
  // Closes the window and returns its full blocks, which Return() takes back.
  Window Close();
  // Blocks that are decoded.
  void Return(const std::vector<CuptiBuffer>& buffers);
  // Frees all free blocks.
  void Trim();

  // For CUPTI: a block and its size, or null and 0.
  uint8_t* Request(size_t* bytes) noexcept;
  void Complete(uint8_t* data, size_t valid_bytes) noexcept;

  int64_t blocks() const;      // that exist
  int64_t blocks_out() const;  // that CUPTI holds

 private:
  enum class State : uint8_t { kFree, kOut, kFull, kDecoding };
  struct Free {
    void operator()(uint8_t* data) const;
  };
  struct Block {
    std::unique_ptr<uint8_t, Free> data;
    size_t bytes = 0;
    size_t valid_bytes = 0;
    uint64_t window = 0;
    State state = State::kFree;
  };
  Block* Find(const uint8_t* data);

  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  std::vector<CuptiBuffer> full_;
  uint64_t window_ = 0;  // counts windows; 0 before the first
  bool open_ = false;
  size_t block_bytes_ = 0;
  size_t max_blocks_ = 0;
  int64_t refused_ = 0;
};

// The pool of CUPTI's callbacks, which carry no pointer of ours. It is never
// destroyed: CUPTI may return a block at any time.
BufferPool& ProcessPool();

}  // namespace stepscope
