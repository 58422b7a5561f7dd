// Host samples to HostUsage rows; pure.
#pragma once

#include <stepscope/event.h>

#include <vector>

#include "host_samples.h"

namespace stepscope {

// One row per step: the difference between its sample and the one before. A
// worker counts from its second sample on; a child process, which began at
// zero, from its first, unless that is the very first sample.
std::vector<HostUsage> DecodeHostUsage(const HostSamples& samples);

}  // namespace stepscope
