// AllocatorStats: the statistics of LibTorch's caching allocators.
#pragma once

#include <cstdint>
#include <vector>

namespace c10 {
struct DeviceAllocator;
}

namespace stepscope {

// The counters of one device. The last four count from the allocator's start.
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

// The caching allocator for the devices of this process: CUDA's (which includes
// ROCm's), else XPU's. Reading it changes nothing in LibTorch, not even the
// peak counters, which programs reset. LibTorch before 2.9 has no such
// interface, so nothing is found.
//
// Used by one thread. The allocators have their own locks.
class DeviceAllocators {
 public:
  // Searches again, because a library may have been loaded since the last call.
  // Takes some microseconds; does not throw.
  void Find();
  bool found() const { return allocator_ != nullptr; }

  // Fills `stats` with the devices on which the allocator has memory.
  void Read(std::vector<AllocatorStats>* stats);

 private:
  bool CountDevices();

  c10::DeviceAllocator* allocator_ = nullptr;
  int32_t devices_ = -1;  // -1: the allocator has not been initialised yet
};

}  // namespace stepscope
