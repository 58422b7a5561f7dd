// The causes that a step's time is split into, and their names.
//
// On a run with a GPU, compute, communication and copy are what the device
// does; the other causes split the time in which it is idle. On a CPU-only run
// all causes are what the training thread does. docs/analysis.md has the table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stepscope {

enum class Cause : uint8_t {
  kCompute,        // kernels, or operators on a CPU
  kCommunication,  // collectives while nothing computes
  kCopy,           // copies and memsets while none of the above runs
  kKernelLatency,  // gaps of at most 10 us before queued activities
  kGraphOpaque,    // gaps before CUDA graphs, whose nodes may not be recorded
  kDependency,     // longer gaps before queued activities: waits for a stream
  kSync,           // the host is in a synchronisation call
  kBlockingCopy,   // the host is in a copy call and its synchronisation
  kAllocator,      // the host is in cudaMalloc, cudaFree and the like
  kData,           // the training thread waits for a batch or makes it
  kProfiler,       // the profiler's own time
  kGc,             // Python's garbage collector
  kDispatch,       // framework code inside an op, around its kernels
  kHostCode,       // the program's own code between ops
  kContended,      // ready to run, without a core (CPU-only runs)
  kUnknown,
  kCount
};
inline constexpr size_t kCauses = static_cast<size_t>(Cause::kCount);

// The key of a cause in time_split_ms of the JSON report.
constexpr const char* CauseKey(Cause cause) {
  constexpr std::array<const char*, kCauses> kKeys = {
      "compute",      "communication", "copy",      "kernel_latency",
      "graph_opaque", "dependency",    "sync",      "blocking_copy",
      "allocator",    "data",          "profiler",  "gc",
      "dispatch",     "host_code",     "contended", "unknown"};
  return kKeys[static_cast<size_t>(cause)];
}

// Nanoseconds by cause; all 0 at first.
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
