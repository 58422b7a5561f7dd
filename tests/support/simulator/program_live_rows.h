// What only a live recording holds: the loader, settings, what the operating
// system counted, clocks and memory of the device, once per step.
#pragma once

#include <stepscope/trace_builder.h>

#include <vector>

#include "support/simulator/program_code.h"
#include "support/simulator/program_host.h"

namespace stepscope::simulator {

// `clock_ns` is added to all times.
void AddLiveRows(const Machine& machine, const RankCode& code,
                 const std::vector<Rank::Usage>& usage, int device,
                 double clock_ns, TraceBuilder& builder);

}  // namespace stepscope::simulator
