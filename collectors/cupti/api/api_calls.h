// Which calls of the CUDA runtime and driver are recorded, and their names.
#pragma once

#include <string_view>
#include <vector>

#include "cupti_api.h"

namespace stepscope {

// "cudaLaunchKernel" for CUPTI's "cudaLaunchKernel_ptsz_v7000": without the
// version and the default-stream variant.
std::string_view CallName(std::string_view cupti_name);

// True for calls that launch, copy, set, wait, allocate, free, or record events
// and wait for them. False for queries that allocators and watchdogs make
// constantly (cudaGetDevice, cudaEventQuery, ...). `name` is CallName()'s.
bool IsWorthRecording(std::string_view name);

// The ids of all other calls of the loaded library in `domain`
// (CUPTI_CB_DOMAIN_RUNTIME_API or _DRIVER_API).
std::vector<uint32_t> CallsToLeaveOut(const CuptiApi& api,
                                      CUpti_CallbackDomain domain);

// The same of the calls for whose CallName() `is_wanted` is true.
std::vector<uint32_t> CallsThat(const CuptiApi& api,
                                CUpti_CallbackDomain domain,
                                bool (*is_wanted)(std::string_view));

}  // namespace stepscope
