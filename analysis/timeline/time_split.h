// The time split: every nanosecond of a step's tiled span to one cause, and,
// as a second axis, to one phase. The parts of a step add up to it exactly.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "steps/steps.h"
#include "timeline/causes.h"
#include "timeline/timeline.h"

namespace stepscope {

// A CPU-only step: what the training thread did. `op_cost_ns` per op is moved
// from the framework's time to the profiler's own; negative is unknown.
CauseTimes SplitOnHost(const Trace& trace, const std::vector<Segment>& timeline,
                       double op_cost_ns);

// Milliseconds per steady step by phase: data, forward, backward, optimizer,
// validate, other. From phase ranges on the training thread where there are
// any; else inferred from loader ranges, autograd nodes and Optimizer ranges.
// Phases that take no time are left out.
std::map<std::string, double> SplitByPhase(const Trace& trace,
                                           const OpTree& tree,
                                           const Steps& steps);

}  // namespace stepscope
