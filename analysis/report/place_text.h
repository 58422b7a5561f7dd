// The time per module and per source line, for the report's three forms.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// Returns one table of aligned columns for the modules and one for the source
// lines, with an empty line between them. The tables have the largest rows, or
// with `all` all rows of the report, and fit `width` columns. Empty if the
// report has neither.
std::vector<std::string> PlaceLines(const Report& report, bool all, int width);

// The members "modules" and "lines" of the report's object.
void WritePlaces(const Report& report, JsonText& json);

}  // namespace stepscope
