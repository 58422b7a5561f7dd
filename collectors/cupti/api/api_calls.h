// Selects the calls of the CUDA runtime and driver that are recorded, and names
// them.
#pragma once

#include <string_view>
#include <vector>

#include "cupti_api.h"

namespace stepscope {

// Returns "cudaLaunchKernel" for CUPTI's "cudaLaunchKernel_ptsz_v7000": removes
// the version and the default-stream variant.
std::string_view CallName(std::string_view cupti_name);

// True for calls that launch, copy, set, wait, allocate, free, or record events
// and wait for them. False for queries that allocators and watchdogs make
// constantly (cudaGetDevice, cudaEventQuery, ...). `name` is a result of
// CallName().
bool IsWorthRecording(std::string_view name);

// Returns the ids of the loaded library's calls that are not worth recording.
// `domain` is CUPTI_CB_DOMAIN_RUNTIME_API or _DRIVER_API.
std::vector<uint32_t> CallsToLeaveOut(const CuptiApi& api,
                                      CUpti_CallbackDomain domain);

// Returns the ids of the calls for whose CallName() `is_wanted` is true.
std::vector<uint32_t> CallsThat(const CuptiApi& api,
                                CUpti_CallbackDomain domain,
                                bool (*is_wanted)(std::string_view));

}  // namespace stepscope
