// What only a live recording holds: the loader, settings, what the operating
// system counted, clocks and memory of the device, once per step.
#pragma once

#include <stepscope/trace_builder.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/simulator/program_code.h"
#include "support/simulator/program_host.h"

namespace stepscope::simulator {

// A simulated time as a host's clock that is right tells it; a double could not
// hold the nanoseconds.
inline int64_t SinceEpoch(double ns) {
  return 1'760'000'000'000'000'000 + std::llround(ns);
}

// `clock_ns` is how far the host's clock is off.
void AddLiveRows(const Machine& machine, const RankCode& code,
                 const std::vector<Rank::Usage>& usage, int device,
                 double clock_ns, TraceBuilder& builder);

}  // namespace stepscope::simulator
