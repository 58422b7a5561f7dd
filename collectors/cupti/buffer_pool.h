// BufferPool: the memory that CUPTI writes its records to, in a limited number
// of blocks. Each block is tracked from CUPTI's request through its completion
// to its decoding. A block that CUPTI holds is never freed and never given out
// twice. If no block is free, the refusal is counted. CUPTI then gets no block
// or, if its version cannot handle that, a block whose records are discarded.
//
// Close() counts the blocks that CUPTI still holds. If such a block comes back
// before the next window opens, TakeLate() gives it to the window it was
// requested in. If it comes back during a later window, it belongs to that
// window, because CUPTI may have continued to write to it. Records of another
// window are clipped from the Trace by their times.
//
// Any thread may call any function. CUPTI's callbacks lock a mutex once per
// block, not per record. In a forked child Complete() does nothing, and
// Request() refuses without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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

  // What CUPTI gets if no block is free.
  struct Overflow {
    // True: CUPTI gets a block whose records are discarded. False: it gets
    // null, which crashes CUPTI before CUDA 12.9.
    bool discard = false;
    // Returns the number of records in a discarded block. Called on CUPTI's
    // threads until Close(). If empty, these records are not counted. Must be
    // small enough for std::function not to allocate.
    std::function<int64_t(const CuptiBuffer&)> count = {};
  };

  // The result of a closed window.
  struct Window {
    uint64_t id = 0;                // counts windows, from 1
    std::vector<CuptiBuffer> full;  // in the order they were completed
    int64_t refused = 0;            // requests that got no block to keep
    int64_t discarded = 0;          // records in discarded blocks
    int64_t still_out = 0;  // blocks of this window that CUPTI still holds
  };

  // Opens a window with blocks of `block_bytes` bytes: as many as fit into
  // `max_bytes`, but at least one. Prepare() allocates memory in advance;
  // otherwise it is allocated when CUPTI requests a block.
  void Open(int64_t max_bytes, int64_t block_bytes, Overflow overflow);
  void Open(int64_t max_bytes, int64_t block_bytes) {
    Open(max_bytes, block_bytes, Overflow());
  }
  // Makes sure that `blocks` blocks are free, within the limit, and touches
  // their memory, so that CUPTI meets no page fault inside a CUDA call. Does
  // nothing between windows.
  void Prepare(int64_t blocks);
  // Closes the window and returns its full blocks. The caller must pass them to
  // Return() after decoding.
  Window Close();
  // Adds the blocks that CUPTI has returned since the window closed, and lowers
  // `still_out`. Returns false while some are still missing.
  bool TakeLate(Window* window);
  // Gives back the blocks of a window that was decoded or is not wanted. Blocks
  // that CUPTI returns later are dropped.
  void Return(const Window& window);
  // Frees all free blocks.
  void Trim();

  // True once the open window has no blocks left or, if an overflow discards
  // records, nearly none. Recording should then stop.
  bool is_running_out() const noexcept {
    return running_out_.load(std::memory_order_relaxed);
  }

  // Called for CUPTI. Returns a block and its size, or null and 0 (see
  // Overflow).
  uint8_t* Request(size_t* bytes) noexcept;
  void Complete(uint8_t* data, size_t valid_bytes) noexcept;

  int64_t blocks() const;         // that exist
  int64_t blocks_out() const;     // that CUPTI holds
  int64_t blocks_in_use() const;  // that are not free

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
    bool is_discard = false;  // its records are not kept
  };
  Block* Find(const uint8_t* data);
  Block* Add(size_t bytes);
  uint8_t* Refuse(size_t* bytes);
  uint8_t* GiveOut(Block* block, size_t* bytes);
  bool is_usable(const Block& block) const {
    return !block.is_discard && block.bytes == block_bytes_;
  }

  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  std::vector<CuptiBuffer> full_;
  struct Late {
    uint64_t window = 0;
    CuptiBuffer buffer;
  };
  std::vector<Late> late_;
  std::vector<uint64_t> awaited_;  // closed windows with blocks at CUPTI
  uint64_t window_ = 0;            // counts windows; 0 before the first
  bool open_ = false;
  size_t block_bytes_ = 0;
  size_t max_blocks_ = 0;
  Overflow overflow_;
  int64_t refused_ = 0;
  int64_t discarded_ = 0;
  std::atomic<bool> running_out_{false};
  std::atomic<bool> discards_{false};  // overflow_.discard, for forked children
};

// The pool for CUPTI's callbacks, which have no user pointer. Never destroyed,
// because CUPTI may return a block at any time.
BufferPool& ProcessPool();

}  // namespace stepscope
