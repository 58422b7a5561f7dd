// For any bytes, reading a rank's digest returns a digest or an error. The
// report of a job with the digest can be made and printed.
//
// The checksum would reject nearly all changes, so the target corrects it: a
// checksum detects accidental damage, but not deliberate changes.
#include <stepscope/analysis.h>
#include <stepscope/rank_digest.h>
#include <stepscope/ranks.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "ranks/digest_wire.h"
#include "ranks/fnv_hash.h"

namespace stepscope {
namespace {

constexpr int kRankField = 5;  // of DigestEnvelope

void Require(bool holds) {
  if (!holds) std::abort();
}

// Returns the rank in `bytes`, or all bytes if they are not an envelope.
std::string_view RankIn(std::string_view bytes) {
  std::string_view rest = bytes;
  for (WireField field; TakeField(rest, field);) {
    if (field.number == kRankField && field.type == WireType::kBytes)
      return field.bytes;
  }
  return bytes;
}

std::string WithRightChecksum(std::string_view rank) {
  std::string out;
  PutKey(1, WireType::kFixed32, out);
  PutFixed(kDigestMagic, 4, out);
  PutKey(2, WireType::kVarint, out);
  PutVarint(kDigestVersion, out);
  PutBytes(3, "fuzz", out);
  PutKey(4, WireType::kFixed64, out);
  PutFixed(FnvHash(rank), 8, out);
  PutBytes(kRankField, rank, out);
  return out;
}

void Read(std::string_view bytes) {
  absl::StatusOr<RankDigest> digest = ParseDigest(bytes);
  if (!digest.ok()) {
    Require(!digest.status().message().empty());
    return;
  }
  // Adds the same digest as the next rank, so that its collectives have
  // partners.
  std::vector<RankDigest> ranks = {*digest, *std::move(digest)};
  ranks[1].report.run.rank = ranks[0].report.run.rank == 0 ? 1 : 0;
  const Report report = AnalyzeRanks(ranks);
  Require(!ToText(report, {.color = true, .verbose = true}).empty());
  Require(ToJson(report).ends_with("}\n"));
  Require(!ToMarkdown(report).empty());
  const std::string again = SerializeDigest(ranks[1]);
  if (again.size() <= kMostDigestBytes) Require(ParseDigest(again).ok());
}

}  // namespace
}  // namespace stepscope

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  stepscope::Read(input);
  stepscope::Read(stepscope::WithRightChecksum(stepscope::RankIn(input)));
  return 0;
}
