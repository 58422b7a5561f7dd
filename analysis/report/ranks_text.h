// The table of ranks in the text and JSON reports.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// A title line, one line per rank, and a legend. Of more than 16 ranks only the
// six that wait least (the others wait for them) and the six that wait most,
// unless `all`. Empty for the report of one rank.
std::vector<std::string> RankLines(const Report& report, bool all);

// The member "ranks" of the report's object; the schema is docs/json.md.
void WriteRanks(const RankComparison& ranks, JsonText& json);

}  // namespace stepscope
