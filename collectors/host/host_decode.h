// Turns host samples into HostUsage rows. Pure.
#pragma once

#include <stepscope/event.h>

#include <vector>

#include "host_samples.h"

namespace stepscope {

// Returns one row per step: the difference between the step's sample and the
// sample before it. A worker thread counts from its second sample on. A child
// process, whose counters began at zero, counts from its first sample, unless
// that is the first sample of all.
std::vector<HostUsage> DecodeHostUsage(const HostSamples& samples);

}  // namespace stepscope
