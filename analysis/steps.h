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
#include <string>
#include <vector>

#include "intervals.h"

namespace stepscope {

enum class StepKind : uint8_t {
  kSteady,
  kWarmUp,      // slow, and one-off records explain it (rule A3)
  kOutlier,     // slow, and nothing explains it
  kValidation,  // holds a pass over validation data (odd_steps.h)
  kCheckpoint,  // saves the model or logs much
};

struct StepWindow {
  Span host = {};
  Span tiled = {};
  int64_t number = 0;
  StepKind kind = StepKind::kSteady;
  int64_t one_off_ns = 0;  // loading, compiling and first allocations in it
};

struct Steps {
  std::vector<StepWindow> windows;  // in time order; empty if there are none
  std::vector<size_t> steady;       // indices into windows
  RowId thread = kNone;             // the training thread; kNone if unknown
  std::string told_by;              // what steps without marks are told by
  bool empty() const { return windows.empty(); }
};

Steps FindSteps(const Trace& trace);

// In words of the report: "steady", "warm-up", "slow", "validation",
// "checkpoint".
const char* StepKindName(StepKind kind);

// Counts all steps; averages the steady ones' tiled spans.
StepStats StatsOf(const Steps& steps);

// What of a recording is replayed.
struct Stretch {
  Steps steps;
  // Of the step before the first: what was launched since then may still run.
  int64_t begin_ns = INT64_MIN;
};

// All steps; of a long recording `most` steady ones in a row, with what lies
// between them, whose mean is nearest to that of all. If it is off by more than
// 1 %, they do not stand for all, and all are replayed.
Stretch StretchOf(const Steps& steps, size_t most);

// REQUIRES: values is not empty.
double Median(std::vector<double> values);

}  // namespace stepscope
