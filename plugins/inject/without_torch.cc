#include "optional_sources.h"

namespace stepscope {

void AddTorch(std::vector<std::unique_ptr<Collector>>&) {}

}  // namespace stepscope
