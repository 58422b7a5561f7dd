// The default collectors of a build with LibTorch.
#include <stepscope/collectors.h>

#include "default_device.h"
#include "default_nvtx.h"

namespace stepscope {

std::vector<std::unique_ptr<Collector>> DefaultCollectors(
    const TorchOptions& options) {
  std::vector<std::unique_ptr<Collector>> collectors;
  collectors.push_back(MakeHostCollector());
  collectors.push_back(MakeSettingsCollector());
  collectors.push_back(MakeAllocatorCollector());
  AddDeviceCollectors(collectors);
  AddNvtxCollector(collectors);
  // Last to start, first to stop: the others' own work is not recorded.
  collectors.push_back(MakeTorchCollector(options));
  return collectors;
}

}  // namespace stepscope
