// ProfileFacts: what a profile of a rung says about where its step goes.
#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <utility>
#include <vector>

namespace ladder {

struct ProfileFacts {
  double step_ms = 0;  // mean of the steady recorded steps
  // {cause: ms}, longest first; adds up to step_ms.
  std::vector<std::pair<std::string, double>> split = {};
  bool has_gpu = false;
  // Part of the step in which the GPU computes; below 0 without one.
  double busy_frac = -1;
  // Part of the kernels' time that is on Tensor Cores; below 0 without kernels.
  double tensor_core_frac = -1;
  std::string machine = {};  // "AMD EPYC, 2 cores; LibTorch 2.11.0"
};

// Reads advice/rank0.json at `advice_path`, and the trace beside it if it has a
// GPU. Errors: DataLoss, NotFound, those of ReadTrace().
absl::StatusOr<ProfileFacts> ReadProfile(const std::string& advice_path);

// The same of the advice's text alone, without what needs the trace.
// Errors: DataLoss.
absl::StatusOr<ProfileFacts> ParseProfile(const std::string& json,
                                          const std::string& what);

}  // namespace ladder
