// The part of the default list that depends on which vendors' headers this
// build has. One of default_device_*.cc is linked.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <vector>

namespace stepscope {

// Adds a collector for each kind of device this build can record.
void AddDeviceCollectors(std::vector<std::unique_ptr<Collector>>& collectors);

}  // namespace stepscope
