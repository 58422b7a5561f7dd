// The training loop that stepscope profiles.
#pragma once

#include <absl/status/statusor.h>

#include "data/image_source.h"
#include "flags/options.h"
#include "progress.h"
#include "step_times.h"

namespace resnet {

// Trains for options.steps steps, under a Profile unless that is switched off.
// Errors: Unavailable (no GPU, no float16), Internal (an exception from
// LibTorch or from reading a picture; the message says which).
absl::StatusOr<StepTimes> Train(const Options& options, Sources sources,
                                Progress& progress);

}  // namespace resnet
