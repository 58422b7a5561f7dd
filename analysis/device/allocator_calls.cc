#include "device/allocator_calls.h"

#include <algorithm>
#include <array>

#include "ops/contains.h"

namespace stepscope {
namespace {

template <size_t kCount>
bool ContainsAny(std::string_view name,
                 const std::array<std::string_view, kCount>& parts) {
  return std::ranges::any_of(
      parts, [name](std::string_view part) { return Contains(name, part); });
}

// PyTorch's expandable segments map physical memory with the driver's calls for
// virtual memory, and never call cudaMalloc.
constexpr auto kGet = std::to_array<std::string_view>(
    {"Malloc", "cuMemAlloc", "cuMemCreate", "cuMemMap"});
constexpr auto kRelease =
    std::to_array<std::string_view>({"Free", "cuMemUnmap", "cuMemRelease"});
constexpr auto kPinnedNames = std::to_array<std::string_view>(
    {"HostAlloc", "HostRegister", "HostUnregister", "MallocHost", "HostMalloc",
     "AllocHost", "FreeHost", "HostFree"});

}  // namespace

std::optional<AllocatorCall> AllocatorCallOf(std::string_view name) {
  if (ContainsAny(name, kPinnedNames)) return AllocatorCall::kPinned;
  const bool releases = ContainsAny(name, kRelease);
  if (!releases && !ContainsAny(name, kGet)) return std::nullopt;
  if (Contains(name, "Async")) return AllocatorCall::kStreamOrder;
  return releases ? AllocatorCall::kDeviceFree : AllocatorCall::kDevice;
}

}  // namespace stepscope
