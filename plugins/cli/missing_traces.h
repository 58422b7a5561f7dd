// Which ranks of a job have no trace among those that were read, and why.
#pragma once

#include <stepscope/logdir.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stepscope {

// The other ranks of the job whose traces are `read`: rank -> why, as
// NameMissingRanks() takes it. An unreadable file is of the rank that its name
// has after "rank"; one without may be of any. `where`: the place that was
// searched. Empty where the traces do not say how many ranks there are.
std::map<int32_t, std::string> WhyMissing(
    const std::vector<const RunInfo*>& read,
    const std::vector<UnreadableFile>& unreadable, const std::string& where);

}  // namespace stepscope
