// The ranks of a run, side by side.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// A table: title line, then a line per rank; of many ranks those that wait
// least (for whom the others wait) and most. Empty for a report of one rank.
std::vector<std::string> RankLines(const Report& report, bool all);

// {"rows": [...], ...}; the schema is in analysis/README.md.
void WriteRanks(const RankComparison& ranks, Json& json);

}  // namespace stepscope
