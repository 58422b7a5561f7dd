// The critical path, told.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// A table: title line, then the parts that matter. Empty without a path.
std::vector<std::string> PathLines(const Report& report);

// [{"category": ..., "name": ..., "ms_per_step": ...}], the longest first.
void WritePath(const Report& report, Json& json);

}  // namespace stepscope
