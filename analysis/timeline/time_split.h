// The time split of a CPU-only step by cause, and of any step by phase. Every
// nanosecond of the step's tiled span has exactly one cause and one phase, so
// the parts add up to the step.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "steps/steps.h"
#include "timeline/causes.h"
#include "timeline/recorder_cost.h"
#include "timeline/timeline.h"

namespace stepscope {

// Adds up the causes of `timeline`, which is what `thread`, the training thread
// of a CPU-only run, did. The cost of recording is hidden in other causes: it
// is moved from dispatch and host code (inside loader ranges, from data) to the
// profiler.
CauseTimes SplitOnHost(const Trace& trace, RowId thread,
                       const std::vector<Segment>& timeline,
                       const RecorderCost& cost);

// Moves `ns` from dispatch to the profiler. If dispatch has less than `ns`,
// moves the rest from host code.
void MoveToProfiler(double ns, CauseTimes& split);

// Returns the milliseconds per steady step of each phase: data, forward,
// backward, optimizer, validate, other. They come from the phase ranges of the
// training thread; without any, from loader ranges, autograd nodes and
// Optimizer ranges; what runs after the optimizer's step is "other". While a
// device is busy, the phase that launched its work counts; while all are idle,
// that of the host. Phases that take no time are left out; empty without
// steady steps or training thread.
std::map<std::string, double> SplitByPhase(const Trace& trace,
                                           const OpTree& tree,
                                           const Steps& steps);

}  // namespace stepscope
