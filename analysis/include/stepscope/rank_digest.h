// A RankDigest as bytes: the contents of a file in the log directory, and the
// message that a rank sends to rank 0 of its job. The format is protobuf
// (ranks/proto/rank_digest.proto).
//
// AnalyzeRanks() gives the same report for parsed digests as for the originals.
// The bytes leave out what a report of all ranks does not need: the critical
// path, the memory peaks and the whole-run times in the rank's own report.
#pragma once

#include <absl/status/statusor.h>
#include <stepscope/ranks.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope {

// ParseDigest() accepts at most this many bytes. A window of ten steps takes
// about 10 to 60 KB. A digest with as many steps and collectives as
// DigestRank() keeps takes less than 1 MB.
inline constexpr size_t kMostDigestBytes = size_t{4} << 20;

// Never fails. Any thread.
std::string SerializeDigest(const RankDigest& digest);

// Errors: InvalidArgument (not a digest, or larger than kMostDigestBytes),
// Unimplemented (a newer version of the format), DataLoss (cut off or changed).
// The messages start with a verb and say what to do: "is damaged ...; analyse
// the trace of the rank instead". Any thread.
absl::StatusOr<RankDigest> ParseDigest(std::string_view bytes);

}  // namespace stepscope
