// StepTimes: how long every step took, and the figures computed from that.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace resnet {

struct StepTimes {
  std::vector<double> step_ms;  // in order, from the first step on
  int warm_steps = 0;           // left out at the start of every figure
  int batch = 0;
  std::optional<double> loss = std::nullopt;  // the last one that was read

  // The median of the steps after the warm ones; of all steps if there are no
  // others; 0 if there are no steps.
  double MedianMs() const;
  // batch / MedianMs(), per second; 0 if there is no median.
  double SamplesPerSecond() const;
  // {"step_ms": [...], "warm_steps": N, "batch": N, "median_ms": X,
  //  "samples_per_s": X, "loss": X or null}
  std::string ToJson() const;
};

// Writes `times` to `path`. Errors: Unavailable, with the system's message.
absl::Status WriteJson(const StepTimes& times, const std::string& path);

}  // namespace resnet
