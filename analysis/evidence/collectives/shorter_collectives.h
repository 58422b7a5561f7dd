// What can be done about collectives besides overlapping them with computing:
// make them shorter. Faster links and ranks that arrive on time help where
// collectives fill the step or wait; moving 16-bit values instead of 32-bit
// ones helps where the bytes take long. These functions have no state, so any
// thread may call them.
#pragma once

#include "context/analysis_context.h"
#include "context/rule.h"

namespace stepscope {

// Added to the evidence of a finding about collectives that fill the step.
inline constexpr char kFillTheStep[] =
    " They fill the step, so overlapping alone would gain less.";
inline constexpr char kFindSlowLinks[] =
    "find out why transfers are slow: NCCL_DEBUG=INFO prints the links and "
    "protocols in use, and the traces of all ranks show whether some are "
    "late; else move fewer bytes (compress gradients, or accumulate them "
    "over several batches)";

// True if no size tells how fast transfers are, and overlapping hides little of
// `exposed_ns`: what replay shows, or else at most `most_ns`.
bool FillsTheStep(const AnalysisContext& m, const Edit& overlapping,
                  double exposed_ns, double most_ns);

// Collectives that fill the step from its first bucket to its end cannot
// overlap with anything more. If they are slower than any usual link, returns
// the change to transfers at a usual rate. Otherwise the edit is empty.
Alternative FasterLinks(const AnalysisContext& m, const Edit& overlapping);

// If transfers at the best rate of the recording explain little of the exposed
// time, overlapping does not help, because collectives wait for the last rank.
// Then returns the change that all ranks arrive on time. Otherwise the edit is
// empty.
Alternative RanksInTime(const AnalysisContext& m, double exposed_ns);

// Collectives of 32-bit floats, in a model whose products run in 16 bits, with
// half the bytes.
struct HalvedBytes {
  Alternative change = {};  // without edit where it gains too little
  double saved_ns = 0;      // of the exposed time per step
};

// Says in the finding's evidence how much of the exposed time the change is
// about, if it gains enough.
HalvedBytes HalfTheBytes(const AnalysisContext& m, Finding& finding);

}  // namespace stepscope
