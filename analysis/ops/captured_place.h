// The place where the kernel of a CUDA graph was captured, which stands for the
// operator that launched it: a replay has none.
#pragma once

#include <stepscope/trace.h>

#include <span>

namespace stepscope {

// The operators that were open, innermost first; empty if unknown.
inline std::span<const NameId> CapturedOps(const Trace& trace,
                                           const Kernel& kernel) {
  if (kernel.captured_ops == kNone) return {};
  return trace.stacks()[kernel.captured_ops].frames;
}

// When the host asked for the work: at its launch, or as it began if that was
// not recorded.
inline int64_t AskedForNs(const Trace& trace, const DeviceWork& work) {
  return work.call == kNone ? work.begin_ns
                            : trace.runtime_calls()[work.call].begin_ns;
}

}  // namespace stepscope
