// What a Profile of an injected program is made with, and of.
#pragma once

#include <stepscope/profile.h>
#include <stepscope/profile_parts.h>

#include "window_options.h"

namespace stepscope {

// All but the schedule. `training_tid` as in ProfileOptions.
ProfileOptions InjectedProfileOptions(const WindowOptions& options,
                                      int64_t training_tid);

// The usual analysis and files, with the sources of this library: the default
// ones would make every injected program load LibTorch.
ProfileParts InjectedParts(const ProfileOptions& options);

}  // namespace stepscope
