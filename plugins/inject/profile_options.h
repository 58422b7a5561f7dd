// The options and the parts of an injected program's Profile.
#pragma once

#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>

#include "window_options.h"

namespace stepscope {

// Everything except the schedule. `training_tid` as in ProfileOptions.
ProfileOptions InjectedProfileOptions(const WindowOptions& options,
                                      int64_t training_tid);

// The default analysis and files, and the collectors of this library: the
// default collectors would make every injected program load LibTorch.
ProfileParts InjectedParts(const ProfileOptions& options);

}  // namespace stepscope
