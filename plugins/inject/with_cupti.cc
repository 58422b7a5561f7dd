#include <stepscope/collectors.h>

#include "optional_sources.h"

namespace stepscope {

void AddCupti(std::vector<std::unique_ptr<Collector>>& collectors) {
  collectors.push_back(MakeCuptiCollector());
}

}  // namespace stepscope
