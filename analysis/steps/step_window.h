// The steps of a Trace: their host windows, the tiled spans that cover the
// timeline without gaps, and which of them are steady.
#pragma once

#include <stepscope/trace.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/intervals.h"

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
  std::string step_source;          // what steps without marks are told by
  bool empty() const { return windows.empty(); }
};

// In words of the report: "steady", "warm-up", "slow", "validation",
// "checkpoint".
const char* StepKindName(StepKind kind);

// REQUIRES: values is not empty.
double Median(std::vector<double> values);

}  // namespace stepscope
