// What a Profile of an injected program is made with.
#pragma once

#include <stepscope/profile.h>

#include "window_options.h"

namespace stepscope {

// All but the schedule. `training_tid` as in ProfileOptions.
ProfileOptions InjectedProfileOptions(const WindowOptions& options,
                                      int64_t training_tid);

}  // namespace stepscope
