// Linked in place of the collector in builds without LibTorch.
#include <stepscope/collectors.h>
#include <stepscope/unavailable_collector.h>

namespace stepscope {

std::unique_ptr<Collector> MakeAllocatorCollector() {
  return MakeUnavailableCollector(
      "allocator",
      "allocator: cannot read the caching allocator: stepscope was built "
      "without LibTorch; configure it with -DSTEPSCOPE_TORCH=ON");
}

}  // namespace stepscope
