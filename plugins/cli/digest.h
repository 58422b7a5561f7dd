// Reads and analyses many traces at once.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/ranks.h>

#include <string>
#include <vector>

namespace stepscope {

// The digest of each file, in the order of `paths`, or the error of
// ReadTrace(). There are as many threads as cores, at most 16, and each holds
// one Trace at a time: memory grows with the number of threads, and with the
// number of ranks only by their reports.
std::vector<absl::StatusOr<RankDigest>> DigestAll(
    const std::vector<std::string>& paths);

}  // namespace stepscope
