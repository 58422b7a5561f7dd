// Returns what a recorder would have kept of a simulated rank.
#pragma once

#include <stepscope/trace.h>

#include <vector>

#include "support/simulator/program_code.h"
#include "support/simulator/program_host.h"

namespace stepscope::simulator {

// REQUIRES: the code has run to its end.
Trace RecordingOf(const Machine& machine, const RankCode& code, int rank,
                  const std::vector<Rank::Usage>& usage, Jitter& jitter);

// Returns the ns per step from the end of the last unrecorded step to the end
// of the last recorded one, including device work.
double TrueStepNs(const Machine& machine, const RankCode& code);

}  // namespace stepscope::simulator
