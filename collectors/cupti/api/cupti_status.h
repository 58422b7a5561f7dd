// Turns CUPTI's codes into a Status that tells the user what to do.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <string_view>

#include "cupti_api.h"

namespace stepscope {

// The message names the attempt ("subscribe", "enable kernel records"), CUPTI's
// code, and what to do. `holder` is the tool that has subscribed, if CUPTI
// names it. REQUIRES: code is not CUPTI_SUCCESS. Codes: PermissionDenied
// (privileges), FailedPrecondition (another profiler, or versions that do not
// fit), Unavailable (not possible on this device), ResourceExhausted, Internal
// (anything else).
absl::Status CuptiError(const CuptiApi& api, std::string_view attempt,
                        CUptiResult code, std::string_view holder = {});

}  // namespace stepscope
