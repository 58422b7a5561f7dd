// From CUPTI's codes to a Status a user can act on.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <string_view>

#include "cupti_api.h"

namespace stepscope {

// What went wrong while we tried to `attempt` ("subscribe", "enable kernel
// records"): the attempt, CUPTI's answer with its code, and what to do.
// `holder` is the tool that holds the subscription, if CUPTI told. REQUIRES:
// code is not CUPTI_SUCCESS.
// Codes: PermissionDenied (privileges), FailedPrecondition (another profiler,
// versions that do not fit), Unavailable (this device cannot), Resource-
// Exhausted, Internal (anything else).
absl::Status CuptiError(const CuptiApi& api, std::string_view attempt,
                        CUptiResult code, std::string_view holder = {});

}  // namespace stepscope
