// BufferPool: the memory that CUPTI writes its records to, in a limited number
// of blocks. Each block is tracked from CUPTI's request through its completion
// and decoding; a block that CUPTI holds is never freed and never given out
// twice. When none is free, the refusal is counted, and CUPTI gets either no
// block or, where it cannot bear that, one whose records are discarded.
//
// A block that CUPTI still holds when its window closes is counted there. If it
// comes back before the next window opens, TakeLate() gives it to its own
// window; if it comes back during a later window it belongs to that one,
// because CUPTI may have continued to write to it. Records of another window
// are clipped from the Trace by their times.
//
// Any thread may call anything. CUPTI's callbacks lock a mutex once per block,
// not per record. In a forked child Complete() does nothing, and Request()
// refuses without a lock.
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

  // What CUPTI gets when no block is free.
  struct Overflow {
    // True: a block whose records are discarded. False: null, which crashes
    // CUPTI before CUDA 12.9.
    bool discard = false;
    // The number of records in a block that is discarded; called on CUPTI's
    // threads until Close(). Empty: they are not counted. It must be small
    // enough for std::function not to allocate.
    std::function<int64_t(const CuptiBuffer&)> count = {};
  };

  // What remains of a closed window.
  struct Window {
    uint64_t id = 0;                // counts windows, from 1
    std::vector<CuptiBuffer> full;  // in the order they were completed
    int64_t refused = 0;            // requests that got no block to keep
    int64_t discarded = 0;          // records in discarded blocks
    int64_t still_out = 0;  // blocks of this window that CUPTI still holds
  };

  // Opens a window with blocks of `block_bytes`, together at most `max_bytes`,
  // but at least one. Memory is allocated by Prepare(), else when CUPTI
  // requests a block.
  void Open(int64_t max_bytes, int64_t block_bytes, Overflow overflow);
  void Open(int64_t max_bytes, int64_t block_bytes) {
    Open(max_bytes, block_bytes, Overflow());
  }
  // Makes `blocks` blocks free, within the limit, and touches their memory, so
  // that CUPTI meets no page fault inside a CUDA call. Does nothing between
  // windows.
  void Prepare(int64_t blocks);
  // Closes the window and returns its full blocks. The caller passes them to
  // Return() when they are decoded.
  Window Close();
  // Adds to `window` what CUPTI has returned since it closed, and lowers
  // `still_out`. False while some of it is missing.
  bool TakeLate(Window* window);
  // The blocks of a window are decoded, or nobody wants them. What CUPTI
  // returns later is dropped.
  void Return(const Window& window);
  // Frees all free blocks.
  void Trim();

  // True once the open window has no blocks left or, where an overflow discards
  // records, nearly none: it is time to stop recording.
  bool is_running_out() const noexcept {
    return running_out_.load(std::memory_order_relaxed);
  }

  // For CUPTI: a block and its size, or null and 0 (see Overflow).
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
  std::vector<uint64_t> awaited_;  // closed windows that CUPTI holds blocks of
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

// The pool of CUPTI's callbacks, which carry no pointer of ours. It is never
// destroyed: CUPTI may return a block at any time.
BufferPool& ProcessPool();

}  // namespace stepscope
