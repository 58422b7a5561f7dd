// RecordingLoad: how much was recorded compared with the host time in which
// recording costs anything. It shows how far a profiler's own cost distorts a
// file.
#pragma once

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
