// Rows that only a live recording has, once per step: the loader, settings,
// counters of the operating system, and the device's clocks and memory.
#pragma once

#include <stepscope/trace_builder.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/simulator/program_code.h"
#include "support/simulator/program_host.h"

namespace stepscope::simulator {

// Converts a simulated time to the time of a correct host clock. A double could
// not hold the nanoseconds.
inline int64_t SinceEpoch(double ns) {
  return 1'760'000'000'000'000'000 + std::llround(ns);
}

// Adds these rows. `clock_ns` is the error of the host's clock.
void AddLiveRows(const Machine& machine, const RankCode& code,
                 const std::vector<Rank::Usage>& usage, int device,
                 double clock_ns, TraceBuilder& builder);

}  // namespace stepscope::simulator
