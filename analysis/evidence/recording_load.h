// How much was recorded, against the time in which recording costs anything:
// what a file tells of a profiler's effect on what it context.
#pragma once

#include "context/analysis_context.h"

namespace stepscope {

struct RecordingLoad {
  double overhead_ns = 0;  // per steady step: the profiler's and driver's own
  double events = 0;       // ops of the training thread, and Python frames
  double allocations = 0;  // and frees
  double host_ns = 0;      // that thread, not waiting for batches or the device
  bool host_sets_pace = false;  // so that recording it lengthens the step
};

// Mean per steady step of a run with a GPU.
double DeviceBusyNs(const AnalysisContext& context);

// REQUIRES: there are steps.
RecordingLoad MeasureRecordingLoad(const AnalysisContext& context);

}  // namespace stepscope
