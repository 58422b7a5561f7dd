// RunTimes: how long the steps of one run took, as the sample program reports
// it with --json.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

#include "json_text.h"

namespace measure {

struct RunTimes {
  std::vector<double> step_ms;  // in order, from the first step on
  int warm_steps = 0;           // at the start, left out of every figure
  int batch = 0;                // samples per step

  // The typical step. Where only every `period`-th step does something (a
  // validation, a checkpoint), a step stands for the mean of `period` in a row.
  // 0 if there are no steps.
  double MedianMs(int period = 1) const;
  // The same, divided by the samples of a step.
  double SampleMs(int period = 1) const;
};

// Reads what the program wrote. `what` names it in messages.
// Errors: DataLoss, if it is not JSON, or not of that kind.
absl::StatusOr<RunTimes> ParseRunTimes(std::string_view json,
                                       const std::string& what);

// What ParseRunTimes() reads, on one line.
JsonObject ToJson(const RunTimes& times);

// The bytes of a file. Errors: NotFound.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace measure
