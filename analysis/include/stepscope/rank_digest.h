// A RankDigest as bytes: a file of the log directory, and what a rank sends to
// rank 0 of its job. The format is protobuf (ranks/proto/rank_digest.proto).
//
// AnalyzeRanks() of parsed digests gives the same report as of the originals.
// What no report of all ranks needs is left out: the critical path and memory
// peaks of the rank's own report, and the times of its whole run.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/ranks.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope {

// A window of ten steps takes some 10 to 60 KB; one with as many steps and
// collectives as DigestRank() keeps, less than 1 MB.
inline constexpr size_t kMostDigestBytes = size_t{4} << 20;

// Never fails. Any thread.
std::string SerializeDigest(const RankDigest& digest);

// Errors: InvalidArgument (no digest, or larger than kMostDigestBytes),
// Unimplemented (of a newer version of the format), DataLoss (cut off or
// changed). The messages begin with a verb and say what to do: "is damaged ...;
// analyse the trace of the rank instead". Any thread.
absl::StatusOr<RankDigest> ParseDigest(std::string_view bytes);

}  // namespace stepscope
