// What gpu_program does in one process, stage by stage, and what each stage
// leaves. No header of LibTorch: the tests that judge the files include it.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

namespace stepscope {

class GpuWork;

// Stage "threads": what each of its threads launches.
inline constexpr int kLaunchingThreads = 4;
inline constexpr int kLaunchesPerThread = 500;
// Stage "overflow": launches, of which its buffers hold a part.
inline constexpr int kOverflowLaunches = 20'000;

struct GpuStage {
  std::string name;
  std::string leaves;  // for the help text; {} is the stage's prefix
  absl::Status (*run)(GpuWork& work, const std::string& prefix) = nullptr;
};

const std::vector<GpuStage>& GpuStages();

}  // namespace stepscope
