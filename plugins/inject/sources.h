// The sources of events of an injection.
#pragma once

#include <stepscope/collector.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace stepscope {

// `training_tid`: the thread that trains, 0 for the one that drives.
std::vector<std::unique_ptr<Collector>> InjectedCollectors(
    int64_t training_tid);

}  // namespace stepscope
