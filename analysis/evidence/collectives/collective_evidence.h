// Functions that all rules about collectives share. They have no state, so any
// thread may call them.
#pragma once

#include <functional>
#include <vector>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "device/collectives.h"

namespace stepscope {

// Sets the finding's examples to the three collectives with the longest exposed
// time among those that `wanted` accepts, and its place to that of the first.
void Illustrate(const AnalysisContext& m,
                const std::function<bool(const Collective&)>& wanted,
                Finding& finding);

// Returns the most that hiding `exposed_ns` of collectives can gain, in ns per
// step. On a CPU the ranks' own cores move the data, so a step cannot become
// shorter than its processor time. If that limits the gain, a sentence in the
// finding's evidence says so. The limit is known only for ranks with one
// intra-op thread: several threads spin while they wait, which counts as
// processor time but is not work.
double HidingBoundNs(const AnalysisContext& m, double exposed_ns,
                     Finding& finding);

// Returns, by index into AnalysisContext::collectives, whether the next kernel
// of the compute stream waits for the collective, so that nothing can run
// beside it: an all-reduce of activations, as in tensor parallelism. Only
// all-reduces count, and not those of gradients: these can be issued earlier,
// and the optimizer alone needs them. False where the recording does not show
// what waits.
std::vector<bool> NeededAtOnce(const AnalysisContext& m);

// Returns the verdict of a rule about collectives if the trace has none: clean,
// or, for a job of several ranks, skipped, because its collectives were not
// recorded.
Verdict AnswerWithoutCollectives(const AnalysisContext& m);

// True if names of FSDP, FSDP2 or DeepSpeed ZeRO 3 show that parameters are
// sharded.
bool ShardsParameters(const Trace& trace);

}  // namespace stepscope
