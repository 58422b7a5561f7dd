// The options and the parts of an injected program's Profile.
#pragma once

#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>

#include "window_options.h"

namespace stepscope {

// Returns all options except the schedule. `training_tid`: see ProfileOptions.
ProfileOptions InjectedProfileOptions(const WindowOptions& options,
                                      int64_t training_tid);

// Returns the default analysis and files with this library's own collectors.
// The default collectors would make every injected program load LibTorch.
ProfileParts InjectedParts(const ProfileOptions& options);

}  // namespace stepscope
