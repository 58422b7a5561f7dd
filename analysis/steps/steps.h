// Finds the steps of a Trace: their host windows, their tiled spans and which
// of them are steady.
//
// A step is a mark on the training thread (ProfilerStep#, or our own); without
// marks it is what the thread repeats (inferred_steps.h). A step owns the
// device activities that its host window launched, so its tiled span runs from
// the end of the previous step's last activity (or of its host window, if that
// is later) to the end of its own last activity. A gap between two marks
// belongs to no step unless it is as short as the usual gap in a loop.
#pragma once

#include <stepscope/report.h>
#include <stepscope/trace.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "ops/op_traits.h"
#include "steps/step_window.h"

namespace stepscope {

// Finds steps and marks warm-up steps and outliers. Validation and checkpoint
// steps are marked by MarkNonTrainingSteps(), which needs these first. If no
// step is steady, all of them are taken as steady, for lack of better ones.
Steps FindSteps(const Trace& trace, const OpTree& tree);

// Returns when the process does work that happens only once: loading kernels,
// compiling, getting memory from the driver. In time order, without overlaps.
std::vector<Span> OneOffSpans(const Trace& trace);

// Counts all steps, none if the only window is a whole recording; mean, median
// and variation are those of the tiled spans of steady steps.
StepStats StatsOf(const Steps& steps);

// Returns by how much the steps `some` (indices of windows) are longer than the
// others, in ns per step of the run; 0 if there are no others. Leaves out
// warm-up.
double LongerBy(const Steps& steps, const std::set<size_t>& some);

// The part of a recording that is replayed.
struct ReplayWindow {
  Steps steps;
  // Start of the step before the first one: activities launched since then may
  // still run when the first step starts. INT64_MIN: everything counts.
  int64_t begin_ns = INT64_MIN;
};

// Returns all steps if at most `most` are steady. Otherwise returns the `most`
// consecutive steady steps (with the other steps between them) whose mean is
// nearest to that of all steady steps. If even that mean is off by more than 1
// %, no part represents the run, and all steps are returned.
ReplayWindow ChooseReplayWindow(const Steps& steps, size_t most);

}  // namespace stepscope
