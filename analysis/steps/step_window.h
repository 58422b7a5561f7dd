// Steps and StepWindow: the data that describes the steps of a Trace. steps.h
// finds them.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/intervals.h"

namespace stepscope {

enum class StepKind : uint8_t {
  kSteady,      // averaged; the others are left out of every mean
  kWarmUp,      // slow because of loading, compiling or first allocations
  kOutlier,     // slow, and nothing recorded explains it
  kValidation,  // has a pass over validation data (non_training_steps.h)
  kCheckpoint,  // saves the model or logs much
};

struct StepWindow {
  Span host = {};      // on the training thread
  Span tiled = {};     // see steps.h; neighbours touch, so their lengths add up
  int64_t number = 0;  // as marked; counted from 0 without marks
  StepKind kind = StepKind::kSteady;
  int64_t one_off_ns = 0;  // loading, compiling and first allocations in it
};

struct Steps {
  std::vector<StepWindow> windows;  // in time order; may be empty
  std::vector<size_t> steady;       // ascending indices into windows
  RowId thread = kNone;             // the training thread; kNone if unknown
  std::string step_source;  // what unmarked steps were inferred from, "the
                            // updates of the optimizer"; "" if they are marked
  // True if no steps were found and the only window is the whole recording
  // (device/whole_recording.h), which is averaged like a step.
  bool is_recording = false;
  // By window: whether it updates the parameters, if most do not because
  // gradients accumulate over several steps; otherwise empty.
  std::vector<bool> rare_updates = {};
  bool empty() const { return windows.empty(); }
};

// The kind in the words of the report: "steady", "warm-up", "slow",
// "validation", "checkpoint".
const char* StepKindName(StepKind kind);

// Returns the median; for an even count, the mean of the middle two values.
// REQUIRES: values is not empty.
double Median(std::vector<double> values);
// Returns the mean; 0 if there are no values.
double Mean(const std::vector<double>& values);

}  // namespace stepscope
