// RecordingLoad: how much was recorded compared with the host time in which
// recording costs anything. It shows how far a profiler's own cost distorts a
// file.
#pragma once

#include <optional>

#include "context/analysis_context.h"

namespace stepscope {

// Counts are of all steps, from the start of the first to the end of the last.
struct RecordingLoad {
  double overhead_ns =
      0;              // time per steady step of the profiler and the driver
  double events = 0;  // ops of the training thread, and Python frames
  double allocations = 0;  // allocations and releases
  double host_ns = 0;      // time of the training thread without its waits for
                           // batches and for the device
  bool host_sets_pace = false;  // the host limits the step, so that the cost of
                                // recording lengthens it
};

// Mean time per steady step in which the device has an activity, in ns.
// REQUIRES: a run with a GPU.
double DeviceBusyNs(const AnalysisContext& context);

// Steps as recorded, and the steps before them, with recording off. Medians of
// host times, in ns: wait steps have no others.
struct WaitedSteps {
  double recorded_ns = 0, unrecorded_ns = 0;
  // Of the recorded step, for which other threads had its core. That is no
  // effect of recording. In the wait steps it is not known.
  double delay_ns = 0;
};
// True if a live recording timed the steps before it.
bool HasWaitSteps(const AnalysisContext& context);
// Empty without wait steps, and where the device sets the pace: then the cost
// of recording on the host does not lengthen the step, and the wait steps may
// be too short, because the host can run ahead of the device in them.
std::optional<WaitedSteps> CompareWithWaitSteps(const AnalysisContext& context);

// REQUIRES: there are steps.
RecordingLoad MeasureRecordingLoad(const AnalysisContext& context);

// The most that a part of the recorded step takes without the recorder, in ns
// of the step that gains refer to (gain_step_ms): for upper bounds. `ns` and
// `events`, its ops, are per steady step. What recording an op costs is known
// where the recorder measured it. An estimate may be too high for the ops of
// this part and right for the others.
double LargestUnrecordedNs(const AnalysisContext& context, double ns,
                           double events);

}  // namespace stepscope
