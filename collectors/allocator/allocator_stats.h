// AllocatorStats: what LibTorch's caching allocators say about themselves.
#pragma once

#include <cstdint>
#include <vector>

namespace c10 {
struct DeviceAllocator;
}

namespace stepscope {

// The counters of one device; the last four count since the allocator began.
struct AllocatorStats {
  int32_t device = 0;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t inactive_split_bytes = 0;
  int64_t segments = 0;
  int64_t segment_allocs = 0;
  int64_t segment_frees = 0;
  int64_t alloc_retries = 0;
  int64_t out_of_memory = 0;
};

// The caching allocator of the devices this process uses: CUDA's (ROCm's goes
// by its name), else XPU's. Finding it changes nothing in LibTorch; in
// particular the peaks that a program resets for itself are left alone.
//
// One thread calls it; the allocators lock for themselves.
class DeviceAllocators {
 public:
  // Looks again; a library loaded since may have brought one. May take some
  // microseconds, and throws nothing.
  void Find();
  bool found() const { return allocator_ != nullptr; }

  // The devices whose allocator has taken memory; empty without a device.
  // Replaces `stats`.
  void Read(std::vector<AllocatorStats>* stats);

 private:
  bool CountDevices();

  c10::DeviceAllocator* allocator_ = nullptr;
  int32_t devices_ = -1;  // -1: the allocator has not been initialised yet
};

}  // namespace stepscope
