// A stand-in for a source that this build lacks, so that every Make function of
// collectors.h exists in every build and says why nothing is recorded.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <string>
#include <string_view>

namespace stepscope {

// Its Start() always returns Unavailable with `reason`, which the Session puts
// into the Trace as a note. `name` must outlive it: a literal.
std::unique_ptr<Collector> MakeUnavailableCollector(std::string_view name,
                                                    std::string reason);

}  // namespace stepscope
