// Runs something while a part of CUPTI is on, without the rest of a recorder:
// to know which part costs what. Apart from what uses LibTorch, as
// record_buffers.h.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>

namespace stepscope {

// Each has what the ones before it have.
enum class CuptiPart : uint8_t {
  kSubscribed,
  kKernels,      // kernels, copies and memsets
  kLaunchCalls,  // calls of the runtime, without queries
  kAllCalls,     // with them
};

// Detaches CUPTI at the end, so that what follows runs without it.
absl::Status UnderCupti(CuptiPart part, const std::function<void()>& work);

}  // namespace stepscope
