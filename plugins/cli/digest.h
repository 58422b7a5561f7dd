// Digest: reading and analysing many traces at once.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/ranks.h>

#include <string>
#include <vector>

namespace stepscope {

// The digest of each file, in the order of `paths`. A few are read at a time,
// by as many threads as there are cores, and a Trace is gone once it is
// digested: memory does not grow with the number of ranks but by their reports.
std::vector<absl::StatusOr<RankDigest>> DigestAll(
    const std::vector<std::string>& paths);

}  // namespace stepscope
