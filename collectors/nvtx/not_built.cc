// Linked in place of the collector in builds without NVTX's headers.
#include <stepscope/collectors.h>
#include <stepscope/unavailable_collector.h>

namespace stepscope {

std::unique_ptr<Collector> MakeNvtxCollector() {
  return MakeUnavailableCollector(
      "nvtx",
      "nvtx: cannot record NVTX ranges: stepscope was built without NVTX's "
      "headers; install them (NVIDIA's wheels beside torch have them) and "
      "configure it again");
}

}  // namespace stepscope
