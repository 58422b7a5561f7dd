// A stand-in for a source that this build lacks. It lets every Make function of
// collectors.h exist in every build and say why nothing is recorded.
#pragma once

#include <stepscope/collector.h>

#include <memory>
#include <string>
#include <string_view>

namespace stepscope {

// Returns a collector whose Start() always returns Unavailable with `reason`,
// which the Session puts into the Trace as a note. `name` must be a literal,
// because it must outlive the collector.
std::unique_ptr<Collector> MakeUnavailableCollector(std::string_view name,
                                                    std::string reason);

}  // namespace stepscope
