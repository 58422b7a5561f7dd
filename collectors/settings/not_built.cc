// Linked in place of the collector in builds without LibTorch.
#include <stepscope/collectors.h>
#include <stepscope/unavailable_collector.h>

namespace stepscope {

std::unique_ptr<Collector> MakeSettingsCollector() {
  return MakeUnavailableCollector(
      "settings",
      "settings: cannot read LibTorch's settings: stepscope was built without "
      "LibTorch; configure it with -DSTEPSCOPE_TORCH=ON");
}

}  // namespace stepscope
