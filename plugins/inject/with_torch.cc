#include <stepscope/collectors.h>

#include "optional_sources.h"

namespace stepscope {

void AddTorch(std::vector<std::unique_ptr<Collector>>& collectors) {
  collectors.push_back(MakeAllocatorCollector());
  collectors.push_back(MakeTorchCollector(TorchOptions()));
}

std::shared_ptr<CaptureScopes> TorchCaptureScopes() {
  return MakeTorchCaptureScopes(TorchOptions());
}

}  // namespace stepscope
