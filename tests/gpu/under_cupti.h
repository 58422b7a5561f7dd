// Runs some work with only parts of CUPTI switched on, without the rest of a
// recorder, to measure what each part costs. Separate from code that uses
// LibTorch, like record_buffers.h.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>

namespace stepscope {

// Each part includes the parts before it.
enum class CuptiPart : uint8_t {
  kSubscribed,
  kKernels,      // kernels, copies and memsets
  kLaunchCalls,  // runtime calls, without queries
  kAllCalls,     // all runtime calls
};

// Detaches CUPTI at the end, so that later work runs without it.
absl::Status UnderCupti(CuptiPart part, const std::function<void()>& work);

}  // namespace stepscope
