#include "rungs.h"

namespace ladder {

const std::vector<Rung>& RungsFor(resnet::DeviceKind device) {
  static const auto* const cpu = new std::vector<Rung>{
      {"baseline", "--batch 32 --workers 0 --threads 1 --set-to-none 0", {}},
      {"a loader worker", "--workers 1", {"sync-data-loading"}},
      {"all cores for operators", "--threads 2", {"cores-idle"}},
      {"a larger batch", "--batch 64", {"small-batch"}},
      {"gradients to None", "--set-to-none 1", {"zero-grad-kernels"}},
      {"a fused optimizer", "--sgd fused", {"unfused-optimizer"}},
      {"channels last", "--channels-last", {"layout-transpose"}},
      {"autocast to bfloat16", "--bf16", {"tensor-cores-idle"}},
  };
  static const auto* const cuda = new std::vector<Rung>{
      {"baseline", "--batch 32 --workers 0 --set-to-none 0", {}},
      {"8 loader workers",
       "--workers 8",
       {"sync-data-loading", "loader-bound"}},
      {"pinned memory", "--pinned", {"h2d-pageable", "h2d-blocking"}},
      {"batch 512", "--batch 512", {"small-batch", "memory-headroom"}},
      {"bytes to the device, batch 1024",
       "--uint8 --batch 1024",
       {"h2d-fp32-input", "h2d-blocking"}},
      {"gradients to None", "--set-to-none 1", {"zero-grad-kernels"}},
      {"TF32", "--tf32", {"tf32-off", "tensor-cores-idle"}},
      {"autocast to float16", "--fp16", {"tensor-cores-idle"}},
      {"channels last", "--channels-last", {"layout-transpose"}},
      {"a fused optimizer",
       "--sgd fused",
       {"unfused-optimizer", "grad-clip-sync"}},
      {"cuDNN's benchmark", "--cudnn-benchmark", {"cudnn-benchmark-off"}},
      {"a CUDA graph", "--cuda-graph", {"launch-bound", "unfused-pointwise"}},
  };
  return device == resnet::DeviceKind::kCpu ? *cpu : *cuda;
}

}  // namespace ladder
