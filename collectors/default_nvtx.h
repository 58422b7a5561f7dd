// Whether this build has NVTX's headers: one of two sources says.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <vector>

namespace stepscope {

void AddNvtxCollector(std::vector<std::unique_ptr<Collector>>& collectors);

}  // namespace stepscope
