// Measures what recorders add to a workload. Every round runs all recorders in
// turn, so that other load on the machine affects all of them alike.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "recorders.h"

namespace stepscope::bench {

// Returns for each recorder `rounds` differences between `ns_per_event` with
// and without it. An extra first round warms up and is dropped. Differences may
// be negative, because noise is not removed.
std::vector<std::vector<double>> AddedNs(
    std::span<const Recorder> recorders, const RecordOptions& options,
    int rounds, const std::function<double()>& ns_per_event);

}  // namespace stepscope::bench
