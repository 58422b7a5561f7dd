#include "default_device.h"

namespace stepscope {

void AddDeviceCollectors(std::vector<std::unique_ptr<Collector>>&) {}

}  // namespace stepscope
