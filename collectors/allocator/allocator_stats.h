// AllocatorStats: the statistics of LibTorch's caching allocators.
#pragma once

#include <cstdint>
#include <vector>

namespace c10 {
struct DeviceAllocator;
}

namespace stepscope {

// The counters of one device; the last four count since the allocator's start.
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

// The caching allocator of the devices of this process: CUDA's (which includes
// ROCm's), else XPU's. Reading it changes nothing in LibTorch; in particular
// the peak counters, which programs reset, stay as they are.
// LibTorch before 2.9 has no such interface: none is found.
//
// One thread calls it; the allocators have locks of their own.
class DeviceAllocators {
 public:
  // Searches again, because a library may have been loaded meanwhile. Takes
  // some microseconds; does not throw.
  void Find();
  bool found() const { return allocator_ != nullptr; }

  // Replaces `stats` by the devices on which the allocator has memory.
  void Read(std::vector<AllocatorStats>* stats);

 private:
  bool CountDevices();

  c10::DeviceAllocator* allocator_ = nullptr;
  int32_t devices_ = -1;  // -1: the allocator has not been initialised yet
};

}  // namespace stepscope
