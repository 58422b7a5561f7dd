// The critical path in the text and JSON reports.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// A title line and one line per part, the longest first; parts below 0.5 % of
// the step are left out, and names fit `width` columns. Empty if the report has
// no critical path.
std::vector<std::string> CriticalPathLines(const Report& report, int width);

// Writes the value of the key "critical_path": [{"category", "name",
// "ms_per_step"}].
void WriteCriticalPath(const Report& report, JsonText& json);

}  // namespace stepscope
