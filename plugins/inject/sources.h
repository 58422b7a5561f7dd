// The collectors of an injection.
#pragma once

#include <stepscope/collector.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace stepscope {

// `training_tid`: the id of the training thread; 0: the thread that drives the
// Profile.
std::vector<std::unique_ptr<Collector>> InjectedCollectors(
    int64_t training_tid);

}  // namespace stepscope
