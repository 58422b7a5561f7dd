// The causes a step's time is split into (rules.md 2.3a), and their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stepscope {

enum class Cause : uint8_t {
  kCompute,
  kCommunication,
  kCopy,
  kKernelLatency,
  kGraphOpaque,
  kDependency,
  kSync,
  kBlockingCopy,
  kAllocator,
  kData,
  kProfiler,
  kGc,
  kDispatch,
  kHostCode,
  kUnknown,
  kCount
};
inline constexpr size_t kCauses = static_cast<size_t>(Cause::kCount);

// The key of a cause in time_split_ms.
constexpr const char* CauseKey(Cause cause) {
  constexpr std::array<const char*, kCauses> kKeys = {
      "compute",      "communication", "copy",     "kernel_latency",
      "graph_opaque", "dependency",    "sync",     "blocking_copy",
      "allocator",    "data",          "profiler", "gc",
      "dispatch",     "host_code",     "unknown"};
  return kKeys[static_cast<size_t>(cause)];
}

// Nanoseconds by cause.
class CauseTimes {
 public:
  int64_t& operator[](Cause cause) { return ns_[static_cast<size_t>(cause)]; }
  int64_t operator[](Cause cause) const {
    return ns_[static_cast<size_t>(cause)];
  }
  int64_t total() const {
    int64_t sum = 0;
    for (int64_t ns : ns_) sum += ns;
    return sum;
  }

 private:
  std::array<int64_t, kCauses> ns_{};
};

}  // namespace stepscope
