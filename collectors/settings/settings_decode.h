// Turns settings samples into Settings rows. A pure function without LibTorch.
#pragma once

#include <stepscope/trace_builder.h>

#include <span>

#include "settings_samples.h"

namespace stepscope {

void AddSettings(std::span<const SettingsSample> samples,
                 TraceBuilder& builder);

}  // namespace stepscope
