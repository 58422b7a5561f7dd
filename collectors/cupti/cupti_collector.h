// The CUPTI collector with its surroundings passed in: tests give it a fake
// CUPTI and a fake driver.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/collectors.h>

#include <functional>
#include <memory>

#include "api/cuda_driver.h"
#include "api/cupti_api.h"

namespace stepscope {

struct CuptiSources {
  // Asked at each Start() until they give something.
  std::function<absl::StatusOr<std::unique_ptr<CudaDriver>>()> driver;
  std::function<absl::StatusOr<std::unique_ptr<CuptiApi>>()> cupti;
};

// `sources` must be callable as long as the collector lives.
std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions& options,
                                              CuptiSources sources);

}  // namespace stepscope
