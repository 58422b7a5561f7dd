#include "report/critical_path_text.h"

#include <string>

#include "report/json_text.h"
#include "report/text_page.h"
#include "words/compiled_names.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kPartsShown = 12;
constexpr double kPathShownFrac = 0.005;  // of the step
constexpr size_t kPathNameColumns = 60;

}  // namespace

std::vector<std::string> CriticalPathLines(const Report& report) {
  std::vector<std::string> lines;
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
    lines.push_back("  " + PadRight(Milliseconds(part.ms_per_step), 10) +
                    PadRight(CauseInWords(part.category, report.has_gpu), 28) +
                    Clipped(WithFusedOps(part.name), kPathNameColumns));
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
