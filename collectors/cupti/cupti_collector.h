// The CUPTI collector with CUPTI and the driver as arguments, so that tests can
// pass fakes.
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
  // Each is called at every Start() until it succeeds.
  std::function<absl::StatusOr<std::unique_ptr<CudaDriver>>()> driver;
  std::function<absl::StatusOr<std::unique_ptr<CuptiApi>>()> cupti;
  // Called once, at the first Start() that loads the other two. If it is null
  // or fails, clocks and power come from CUPTI, if CUPTI has them.
  std::function<absl::StatusOr<std::unique_ptr<NvmlApi>>()> nvml = nullptr;
};

// REQUIRES: the functions of `sources` can be called as long as the collector
// lives.
std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options,
                                              CuptiSources sources);

}  // namespace stepscope
