// The place where the kernel of a CUDA graph was captured. It stands in for the
// operator that launched the kernel, because a replay runs no operators.
#pragma once

#include <stepscope/trace.h>

#include <span>

namespace stepscope {

// Returns the operators that were open at capture, innermost first; empty if
// unknown.
inline std::span<const NameId> CapturedOps(const Trace& trace,
                                           const Kernel& kernel) {
  if (kernel.captured_ops == kNone) return {};
  return trace.stacks()[kernel.captured_ops].frames;
}

// Returns when the host asked for the work: the start of its launch call, or
// the start of the work itself if the launch was not recorded.
inline int64_t AskedForNs(const Trace& trace, const DeviceWork& work) {
  return work.call == kNone ? work.begin_ns
                            : trace.runtime_calls()[work.call].begin_ns;
}

}  // namespace stepscope
