#include "optional_sources.h"

namespace stepscope {

void AddTorch(std::vector<std::unique_ptr<Collector>>&) {}

std::shared_ptr<CaptureScopes> TorchCaptureScopes() { return nullptr; }

}  // namespace stepscope
