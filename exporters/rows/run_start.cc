#include "rows/run_start.h"

#include <algorithm>
#include <cstddef>

namespace stepscope {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view StartOfRun(std::string_view run) {
  constexpr std::string_view kPattern = "0000_00_00_00_00_00";
  // Searches from the end, because the user's name, which comes first, may
  // contain a time, too. A number may follow the start if two runs started in
  // the same second.
  for (size_t end = run.size(); end >= kPattern.size(); --end) {
    const size_t begin = end - kPattern.size();
    if (end < run.size() && run[end] != '_') continue;
    if (begin > 0 && run[begin - 1] != '_') continue;
    const std::string_view start = run.substr(begin, kPattern.size());
    const bool fits = std::ranges::equal(
        start, kPattern,
        [](char c, char like) { return like == '0' ? IsDigit(c) : c == like; });
    if (fits) return start;
  }
  return "";
}

}  // namespace stepscope
