#include "report/critical_path_text.h"

#include <algorithm>
#include <string>
#include <utility>

#include "report/json_text.h"
#include "report/layout/text_page.h"
#include "report/layout/text_table.h"
#include "words/compiled_names.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kPartsShown = 12;
constexpr double kPathShownFrac = 0.005;  // of the step
constexpr size_t kTimeColumns = 10;
constexpr size_t kCauseColumns = 28;
constexpr int kLeastNameColumns = 16;

}  // namespace

std::vector<std::string> CriticalPathLines(const Report& report, int width) {
  std::vector<std::string> lines;
  // The names, which are the last column, get the room that is left.
  const auto name_columns = static_cast<size_t>(
      std::max(width - static_cast<int>(2 + kTimeColumns + kCauseColumns),
               kLeastNameColumns));
  for (const PathPart& part : report.critical_path) {
    // The parts are sorted, so all parts after the first small one are small,
    // too. The heading is one of the lines.
    if (lines.size() > kPartsShown ||
        part.ms_per_step < kPathShownFrac * report.steps.mean_ms) {
      break;
    }
    if (lines.empty()) {
      lines.push_back(
          "critical path, per step: only a change to these makes the step "
          "shorter");
    }
    std::string line =
        "  " + PadRight(Milliseconds(part.ms_per_step), kTimeColumns) +
        PadRight(CauseInWords(part.category, report.has_gpu), kCauseColumns) +
        Shortened(WithFusedOps(part.name), name_columns);
    // Some parts have no name.
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

void WriteCriticalPath(const Report& report, JsonText& json) {
  json.Open('[');
  for (const PathPart& part : report.critical_path) {
    json.Open('{');
    json.Field("category", part.category);
    json.Field("name", part.name);
    WriteFusedOps(part.name, json);
    json.Field("ms_per_step", part.ms_per_step);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace stepscope
