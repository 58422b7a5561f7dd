// RecordingLoad: how much was recorded, compared with the host time in which
// recording costs anything. Shows how far the profiler's own cost distorts a
// file.
#pragma once

#include <optional>

#include "context/analysis_context.h"

namespace stepscope {

// Counts cover all steps, from the start of the first to the end of the last.
struct RecordingLoad {
  double overhead_ns =
      0;              // time per steady step of the profiler and the driver
  double events = 0;  // ops, CUDA calls and Python frames of the threads that
                      // train
  double allocations = 0;  // allocations and releases
  double host_ns = 0;      // time of the training thread, without its waits for
                           // batches and for the device
  bool host_sets_pace = false;  // the host limits the step, so that the cost of
                                // recording lengthens the step
};

// Returns the mean time in ns per steady step in which the device has an
// activity. REQUIRES: a run with a GPU.
double DeviceBusyNs(const AnalysisContext& context);

// Recorded steps compared with the wait steps before them, which ran without
// recording. Median host times in ns, because wait steps have no others.
struct WaitedSteps {
  double recorded_ns = 0, unrecorded_ns = 0;
  // How long other threads kept the core from the recorded step, which is no
  // effect of recording. For wait steps it is unknown.
  double delay_ns = 0;
};
// True if a live recording timed the steps before it ("wait steps").
bool HasWaitSteps(const AnalysisContext& context);
// Returns nullopt if there are no wait steps, and if the device limits the
// step. In the latter case the host's cost of recording does not lengthen the
// step, and the wait steps may seem too short, because the host can run ahead
// of the device.
std::optional<WaitedSteps> CompareWithWaitSteps(const AnalysisContext& context);

// REQUIRES: there are steps.
RecordingLoad MeasureRecordingLoad(const AnalysisContext& context);

// Returns the most that a part of the recorded step takes without the recorder,
// in ns of the step that gains refer to (gain_step_ms). Used for upper bounds.
// `ns` and `events`, the number of its ops, are per steady step. The cost of
// recording an op is known only if the recorder measured it. An estimated cost
// may be too high for the ops of this part and right for the others.
double LargestUnrecordedNs(const AnalysisContext& context, double ns,
                           double events);

}  // namespace stepscope
