#include <stepscope/collectors.h>

#include "default_device.h"

namespace stepscope {

void AddDeviceCollectors(std::vector<std::unique_ptr<Collector>>& collectors) {
  collectors.push_back(MakeCuptiCollector());
}

}  // namespace stepscope
