#include "report/path.h"

#include <algorithm>
#include <string>

#include "report/page.h"
#include "words/labels.h"
#include "words/quantities.h"

namespace stepscope {
namespace {

constexpr size_t kPartsShown = 12;
// Of the step; less is of no interest to a reader.
constexpr double kWorthTelling = 0.005;

std::string Padded(const std::string& text, size_t columns) {
  return text + std::string(columns - std::min(columns, text.size()), ' ');
}

}  // namespace

std::vector<std::string> PathLines(const Report& report) {
  std::vector<std::string> lines;
  for (const PathPart& part : report.critical_path) {
    if (lines.size() > kPartsShown ||
        part.ms_per_step < kWorthTelling * report.steps.mean_ms) {
      break;
    }
    if (lines.empty()) {
      lines.push_back(
          "critical path, per step: what the step cannot be "
          "shorter than as long as this takes");
    }
    const std::string name = Printable(part.name);
    lines.push_back("  " + Padded(Milliseconds(part.ms_per_step), 10) +
                    Padded(CauseInWords(part.category, report.has_gpu), 28) +
                    (name.size() > 60 ? name.substr(0, 57) + "..." : name));
  }
  return lines;
}

void WritePath(const Report& report, Json& json) {
  json.Open('[');
  for (const PathPart& part : report.critical_path) {
    json.Open('{');
    json.Field("category", part.category);
    json.Field("name", part.name);
    json.Field("ms_per_step", part.ms_per_step);
    json.Close('}');
  }
  json.Close(']');
}

}  // namespace stepscope
