// Finds the ranks of a job that have no trace among those that were read, and
// why.
#pragma once

#include <stepscope/logdir.h>
#include <stepscope/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stepscope {

// Returns the job's ranks that are not among the traces `read`: rank -> why, as
// NameMissingRanks() takes it. An unreadable file belongs to the rank that its
// name has after "rank"; without such a number it may be any rank. `where`: the
// place that was searched. Empty if the traces do not say how many ranks there
// are.
std::map<int32_t, std::string> WhyMissing(
    const std::vector<const RunInfo*>& read,
    const std::vector<UnreadableFile>& unreadable, const std::string& where);

}  // namespace stepscope
