// The default collectors of a build without LibTorch.
#include <stepscope/collectors.h>

namespace stepscope {

std::vector<std::unique_ptr<Collector>> DefaultCollectors(const TorchOptions&) {
  std::vector<std::unique_ptr<Collector>> collectors;
  collectors.push_back(MakeHostCollector());
  return collectors;
}

}  // namespace stepscope
