// Linked in place of the collector in builds without LibTorch.
#include <stepscope/collectors.h>
#include <stepscope/unavailable_collector.h>

namespace stepscope {

std::unique_ptr<Collector> MakeTorchCollector(const TorchOptions&) {
  return MakeUnavailableCollector(
      "torch",
      "torch: cannot record operators: stepscope was built without LibTorch; "
      "configure it with -DSTEPSCOPE_TORCH=ON and STEPSCOPE_PYTHON set to a "
      "Python that has torch");
}

std::unique_ptr<CaptureScopes> MakeTorchCaptureScopes(const TorchOptions&) {
  return nullptr;
}

}  // namespace stepscope
