#include <stepscope/ranks.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace stepscope {
namespace {

constexpr size_t kRanksNamed = 16;
// With a thousand unreadable files, each may have its own reason.
constexpr size_t kReasonsNamed = 20;

// "rank 3", "ranks 1, 2 and 5".
std::string NamesOf(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = std::min(ranks.size(), kRanksNamed);
  for (size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += (i == 0 ? "" : is_last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > named) {
    text += " and " + std::to_string(ranks.size() - named) + " more";
  }
  return text;
}

// Turns "does not record" into "do not record", for several ranks.
std::string ForSeveral(const std::string& why) {
  constexpr std::pair<std::string_view, std::string_view> kVerbs[] = {
      {"does ", "do "}, {"has ", "have "}};
  for (const auto& [one, several] : kVerbs) {
    if (why.starts_with(one))
      return std::string(several) + why.substr(one.size());
  }
  return why;
}

Loss LossOf(std::string detail, size_t ranks) {
  return {.name = "missing-rank",
          .detail = std::move(detail),
          .count = static_cast<int64_t>(ranks),
          .severity = Severity::kWarning};
}

}  // namespace

void NameMissingRanks(const std::map<int32_t, std::string>& missing,
                      Report& report) {
  std::map<std::string, std::vector<int32_t>> by_reason;
  // Ranks mostly fail for a common reason, so one line for all of them is
  // enough.
  for (const auto& [rank, why] : missing) by_reason[why].push_back(rank);
  size_t named = 0;
  std::vector<int32_t> others;
  for (const auto& [why, ranks] : by_reason) {
    if (++named > kReasonsNamed) {
      others.insert(others.end(), ranks.begin(), ranks.end());
      continue;
    }
    report.losses.push_back(LossOf(
        NamesOf(ranks) + " " + (ranks.size() > 1 ? ForSeveral(why) : why),
        ranks.size()));
  }
  if (others.empty()) return;
  std::ranges::sort(others);
  report.losses.push_back(
      LossOf(NamesOf(others) + ", for reasons of their own", others.size()));
}

}  // namespace stepscope
