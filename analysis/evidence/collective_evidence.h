// What the findings of all rules about collectives have in common. Functions
// without state: safe from any thread.
#pragma once

#include <functional>

#include "context/analysis_context.h"
#include "context/rule.h"
#include "device/collectives.h"

namespace stepscope {

// Sets the finding's examples to the three `wanted` collectives with the
// longest exposed time, and its place to the first of them.
void Illustrate(const AnalysisContext& m,
                const std::function<bool(const Collective&)>& wanted,
                Finding& finding);

// The most that hiding `exposed_ns` of collectives can gain, ns per step. On a
// CPU the ranks' own cores move the data, so a step cannot become shorter than
// the processor time it takes; the finding says so where that is less. Known for
// ranks with one intra-op thread: more of them spin while they wait, and what
// they spend on that is not work.
double HidingBoundNs(const AnalysisContext& m, double exposed_ns,
                     Finding& finding);

// The verdict of a rule about collectives on a trace without any: clean, or
// skipped for a job of several ranks, whose collectives were not recorded.
Verdict AnswerWithoutCollectives(const AnalysisContext& m);

// True if names of FSDP, FSDP2 or DeepSpeed ZeRO 3 show that parameters are
// sharded.
bool ShardsParameters(const Trace& trace);

}  // namespace stepscope
