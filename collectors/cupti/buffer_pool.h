// BufferPool: the memory CUPTI writes its records to. A fixed number of blocks,
// each followed from CUPTI's request to its completion and on through decoding;
// a block that CUPTI holds is never freed and never handed out twice. When all
// are out, CUPTI gets none and the refusal is counted.
//
// A block that CUPTI did not hand over at the end of its window is counted
// there. If it comes back while a later window is open it is that one's, as
// CUPTI may have gone on writing to it; what is older is clipped from the Trace
// by its times. If it comes back between windows it is simply free again.
//
// Any thread may call anything. CUPTI's callbacks take one mutex per block, not
// per record. In a forked child Request() refuses and Complete() does nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace stepscope {

// Records as CUPTI left them: `valid_bytes` of them from `data` on.
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

  // What a window left behind.
  struct Window {
    std::vector<CuptiBuffer> full;  // in the order they were completed
    int64_t refused = 0;            // requests that got no block
    int64_t still_out = 0;  // blocks of this window that CUPTI still holds
  };

  // Opens a window with blocks of `block_bytes`, `max_bytes` together; at least
  // one block. Memory is taken when CUPTI asks for it.
  void Open(int64_t max_bytes, int64_t block_bytes);
  // Closes the window and hands over its blocks; give them back by Return().
  Window Close();
  // The decoder is done with them.
  void Return(const std::vector<CuptiBuffer>& buffers);
  // Frees every block nobody holds.
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

// The pool CUPTI's callbacks use, which carry no pointer of ours. It lives as
// long as the process: CUPTI may return a block at any time.
BufferPool& ProcessPool();

}  // namespace stepscope
