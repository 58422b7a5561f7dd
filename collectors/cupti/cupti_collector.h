// The CUPTI collector with CUPTI and the driver as arguments; tests pass fakes.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/collectors.h>

#include <functional>
#include <memory>

#include "api/cuda_driver.h"
#include "api/cupti_api.h"
#include "nvml/nvml_api.h"

namespace stepscope {

struct CuptiSources {
  // Called at each Start() until they succeed.
  std::function<absl::StatusOr<std::unique_ptr<CudaDriver>>()> driver;
  std::function<absl::StatusOr<std::unique_ptr<CuptiApi>>()> cupti;
  // Called once, at the first Start() that gets so far. Null, or an error:
  // clocks and power come from CUPTI, if it has them.
  std::function<absl::StatusOr<std::unique_ptr<NvmlApi>>()> nvml = nullptr;
};

// REQUIRES: `sources` can be called as long as the collector lives.
std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options,
                                              CuptiSources sources);

}  // namespace stepscope
