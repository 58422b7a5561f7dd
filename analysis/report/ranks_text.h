// The table of ranks in the text and JSON reports.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// Returns a title line, one line per rank, and a legend. If there are more than
// 16 ranks and not `all`, only the six that wait least (the others wait for
// them) and the six that wait most. The tables fit `width` columns. Empty for
// the report of one rank.
std::vector<std::string> RankLines(const Report& report, bool all, int width);

// Writes the member "ranks" of the report's object; the schema is docs/json.md.
void WriteRanks(const RankComparison& ranks, JsonText& json);

}  // namespace stepscope
