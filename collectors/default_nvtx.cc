#include "default_nvtx.h"

#include <stepscope/collectors.h>

namespace stepscope {

void AddNvtxCollector(std::vector<std::unique_ptr<Collector>>& collectors) {
  collectors.push_back(MakeNvtxCollector());
}

}  // namespace stepscope
