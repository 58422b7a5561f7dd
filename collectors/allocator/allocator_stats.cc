#include "allocator_stats.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/version.h>

#include <exception>

namespace stepscope {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 9

// These versions have an interface for each vendor, but no common one that also
// exists in a build without a device. So there are no statistics.
void DeviceAllocators::Find() {}
bool DeviceAllocators::CountDevices() { return false; }
void DeviceAllocators::Read(std::vector<AllocatorStats>* stats) {
  stats->clear();
}

#else

namespace {

constexpr c10::DeviceType kTypes[] = {c10::DeviceType::CUDA,
                                      c10::DeviceType::XPU};
constexpr int32_t kMostDevices = 64;

// Returns null if there is no such allocator. Some builds of LibTorch throw
// instead.
c10::DeviceAllocator* AllocatorOf(c10::DeviceType type) {
  try {
    return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(type));
  } catch (const std::exception&) {
    return nullptr;
  }
}

int64_t Total(const c10::CachingAllocator::StatArray& stat) {
  return stat[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .current;
}

}  // namespace

void DeviceAllocators::Find() {
  allocator_ = nullptr;
  devices_ = -1;
  for (const c10::DeviceType type : kTypes) {
    c10::DeviceAllocator* const found = AllocatorOf(type);
    if (found == nullptr) continue;
    allocator_ = found;
    if (CountDevices()) return;
  }
}

// True if the allocator is initialised; then also counts the devices. Only the
// vendor's library knows their number, but the allocator throws for a device
// that does not exist.
bool DeviceAllocators::CountDevices() {
  if (devices_ >= 0) return true;
  try {
    if (allocator_ == nullptr || !allocator_->initialized()) return false;
    devices_ = 0;
    while (devices_ < kMostDevices) {
      (void)allocator_->getDeviceStats(static_cast<c10::DeviceIndex>(devices_));
      ++devices_;
    }
  } catch (const std::exception&) {
    // The exception for the first device that does not exist ends the count.
  }
  return devices_ >= 0;
}

void DeviceAllocators::Read(std::vector<AllocatorStats>* stats) {
  stats->clear();
  if (!CountDevices()) return;
  for (int32_t device = 0; device < devices_; ++device) {
    try {
      const auto now =
          allocator_->getDeviceStats(static_cast<c10::DeviceIndex>(device));
      // Skip a device that this process has never used.
      if (now.num_device_alloc == 0 && Total(now.reserved_bytes) == 0) continue;
      stats->push_back({.device = device,
                        .allocated_bytes = Total(now.allocated_bytes),
                        .reserved_bytes = Total(now.reserved_bytes),
                        .inactive_split_bytes = Total(now.inactive_split_bytes),
                        .segments = Total(now.segment),
                        .segment_allocs = now.num_device_alloc,
                        .segment_frees = now.num_device_free,
                        .alloc_retries = now.num_alloc_retries,
                        .out_of_memory = now.num_ooms});
    } catch (const std::exception&) {
    }
  }
}

#endif

}  // namespace stepscope
