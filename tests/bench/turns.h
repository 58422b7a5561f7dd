// What recorders add to a workload: all of them in turn in every round, so that
// whatever else the machine does meets all alike.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "recorders.h"

namespace stepscope::bench {

// For each recorder, `rounds` differences between `ns_per_event` with it and
// without one. The first round warms up and is not among them. A difference may
// be below zero: noise is left in.
std::vector<std::vector<double>> AddedNs(
    std::span<const Recorder> recorders, const RecordOptions& options,
    int rounds, const std::function<double()>& ns_per_event);

}  // namespace stepscope::bench
