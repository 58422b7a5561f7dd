// Host samples to HostUsage rows; pure.
#pragma once

#include <stepscope/event.h>

#include <vector>

#include "host_samples.h"

namespace stepscope {

// One row per step: the difference between its sample and the one before. A
// worker thread counts from its second sample on. A child process, whose
// counters began at zero, counts from its first, unless that is the first
// sample of all.
std::vector<HostUsage> DecodeHostUsage(const HostSamples& samples);

}  // namespace stepscope
