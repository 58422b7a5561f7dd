// Why several ranks have no collective in common.
#pragma once

#include <stepscope/ranks.h>

#include <string>
#include <vector>

namespace stepscope {

// Returns why MatchCollectives() found nothing. Sets `different_jobs` where the
// ranks have collectives in groups that both should be in, but no step of one
// rank has as many of them as a step of another one.
std::string WhyNoneMatched(const std::vector<RankDigest>& ranks,
                           bool& different_jobs);

}  // namespace stepscope
