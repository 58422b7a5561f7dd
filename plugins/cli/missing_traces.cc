#include "missing_traces.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <system_error>

namespace stepscope {
namespace {

// The limit is for damaged headers, which may contain any number.
constexpr int32_t kMostRanks = 1'000'000;

// Returns 12 for "/job/rank12.json.gz" and "/job/net_rank-12.json"; -1 if the
// name has no rank.
int32_t RankInName(std::string_view path) {
  constexpr std::string_view kWord = "rank";
  std::string_view name = path.substr(path.rfind('/') + 1);
  for (size_t at = name.find(kWord); at != std::string_view::npos;
       at = name.find(kWord)) {
    name.remove_prefix(at + kWord.size());
    std::string_view digits = name;
    if (digits.starts_with('_') || digits.starts_with('-'))
      digits.remove_prefix(1);
    int32_t rank = -1;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error == std::errc() && rank >= 0) return rank;
  }
  return -1;
}

}  // namespace

std::map<int32_t, std::string> WhyMissing(
    const std::vector<const RunInfo*>& read,
    const std::vector<UnreadableFile>& unreadable, const std::string& where) {
  std::set<int32_t> there;
  int32_t size = 0;
  for (const RunInfo* run : read) {
    there.insert(run->rank);
    size = std::max(size, run->world_size);
  }
  if (size > kMostRanks) return {};
  std::map<int32_t, std::string> by_rank;
  for (const UnreadableFile& file : unreadable)
    by_rank.try_emplace(RankInName(file.path), file.why);
  // -1 stands for files whose name has no rank. Any missing rank may be one of
  // these files.
  std::string nothing = "has no trace in " + where;
  if (const auto any = by_rank.find(-1); any != by_rank.end())
    nothing += " that can be read: " + any->second;
  std::map<int32_t, std::string> missing;
  for (int32_t rank = 0; rank < size; ++rank) {
    if (there.contains(rank)) continue;
    const auto named = by_rank.find(rank);
    missing[rank] = named == by_rank.end()
                        ? nothing
                        : "has no trace that can be read: " + named->second;
  }
  return missing;
}

}  // namespace stepscope
