// Linked in place of the collector in builds without CUPTI's headers.
#include <stepscope/collectors.h>
#include <stepscope/unavailable_collector.h>

namespace stepscope {

std::unique_ptr<Collector> MakeCuptiCollector(const CuptiOptions&) {
  return MakeUnavailableCollector(
      "cupti",
      "cupti: cannot record the GPU: stepscope was built without CUPTI's "
      "headers; install CUDA 13's CUPTI headers (NVIDIA's wheels beside torch "
      "have them) and configure it again");
}

}  // namespace stepscope
