// The stages that gpu_program runs in one process, and the files that each
// stage writes. Includes no LibTorch header, because the tests that check the
// files include it.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

namespace stepscope {

class GpuWork;

// Stage "threads": launches per thread.
inline constexpr int kLaunchingThreads = 4;
inline constexpr int kLaunchesPerThread = 500;
// Stage "overflow": number of launches, more than its buffers hold.
inline constexpr int kOverflowLaunches = 20'000;

struct GpuStage {
  std::string name;
  std::string leaves;  // for the help text; {} is the prefix
  absl::Status (*run)(GpuWork& work, const std::string& prefix) = nullptr;
};

const std::vector<GpuStage>& GpuStages();

}  // namespace stepscope
