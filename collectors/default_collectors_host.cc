// The default collectors of a build without LibTorch.
#include <stepscope/collectors.h>

#include "default_device.h"
#include "default_nvtx.h"

namespace stepscope {

std::vector<std::unique_ptr<Collector>> DefaultCollectors(const TorchOptions&) {
  std::vector<std::unique_ptr<Collector>> collectors;
  collectors.push_back(MakeHostCollector());
  AddDeviceCollectors(collectors);
  AddNvtxCollector(collectors);
  return collectors;
}

}  // namespace stepscope
