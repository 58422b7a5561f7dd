#include "optional_sources.h"

namespace stepscope {

void AddCupti(std::vector<std::unique_ptr<Collector>>&) {}

}  // namespace stepscope
