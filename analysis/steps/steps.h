// The steps of a Trace: their host windows, the tiled spans that cover the
// timeline without gaps, and which of them are steady.
//
// A step is a mark on the training thread; without marks it is what repeats
// there (inferred_steps.h). The tiled span runs from the
// end of the previous step's last device work (or its host end, if later) to
// the end of this one's; without device work it is the host window.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <vector>

#include "steps/step_window.h"

namespace stepscope {

Steps FindSteps(const Trace& trace);

// Counts all steps; averages the steady ones' tiled spans.
StepStats StatsOf(const Steps& steps);

// What of a recording is replayed.
struct ReplayWindow {
  Steps steps;
  // Of the step before the first: what was launched since then may still run.
  int64_t begin_ns = INT64_MIN;
};

// All steps; of a long recording `most` steady ones in a row, with what lies
// between them, whose mean is nearest to that of all. If it is off by more than
// 1 %, they do not stand for all, and all are replayed.
ReplayWindow ChooseReplayWindow(const Steps& steps, size_t most);

}  // namespace stepscope
