#include "table.h"

#include <algorithm>
#include <map>

#include "pattern.h"

namespace gallery {

std::string ListText() {
  std::string text;
  for (const Pattern* pattern : AllPatterns()) {
    std::string line(pattern->rule);
    // A longer name shifts only its own line and is not cut.
    line.resize(std::max<size_t>(line.size() + 1, 26), ' ');
    text += line + std::string(pattern->habit) +
            (pattern->needs_gpu ? " (GPU)" : "") + '\n';
  }
  return text;
}

std::string TableMarkdown() {
  // Sorted by rule, with programs and absent rules together.
  std::map<std::string, std::string> rows;
  for (const Pattern* pattern : AllPatterns()) {
    rows[std::string(pattern->rule)] =
        std::string(pattern->habit) + " | " + std::string(pattern->fix) +
        (pattern->needs_gpu ? " | on a GPU | simulated |"
                            : " | on a CPU | recorded |");
  }
  for (const Absent& absent : AbsentRules()) {
    rows[std::string(absent.rule)] =
        "none: " + std::string(absent.why) + " | | | simulated |";
  }
  std::string text =
      "| rule | program's habit | its fix | shows | in CI |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const auto& [rule, row] : rows) {
    text += "| `" + rule + "` | " + row + '\n';
  }
  return text;
}

}  // namespace gallery
