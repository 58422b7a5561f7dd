// The training loop that stepscope looks at.
#pragma once

#include <absl/status/statusor.h>

#include "data/image_source.h"
#include "flags/options.h"
#include "progress.h"
#include "step_times.h"

namespace resnet {

// Trains for options.steps steps under a Profile scope, unless switched off.
// Errors: Unavailable (no GPU, no float16), Internal (what LibTorch, or a
// picture that cannot be read, threw: the message says which).
absl::StatusOr<StepTimes> Train(const Options& options, Sources sources,
                                Progress& progress);

}  // namespace resnet
