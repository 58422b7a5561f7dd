// Which calls of CUDA, HIP or their drivers manage memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stepscope {

enum class AllocatorCall : uint8_t {
  kDevice,       // cudaMalloc, cuMemCreate: memory of a device
  kDeviceFree,   // cudaFree, cuMemUnmap: waits until the device has finished
  kStreamOrder,  // cudaMallocAsync, cudaFreeAsync: ordered by a stream
  kPinned        // cudaHostAlloc, cudaHostRegister, cudaFreeHost
};

// The kind of memory call, from its name; nullopt for all other calls.
std::optional<AllocatorCall> AllocatorCallOf(std::string_view name);

}  // namespace stepscope
