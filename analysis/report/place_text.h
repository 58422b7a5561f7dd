// The time per module and per source line, for the report's three forms.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// One table of aligned columns for the modules and one for the source lines,
// an empty line between them: the largest of each, or with `all` those that the
// report has. Empty where the recording has neither.
std::vector<std::string> PlaceLines(const Report& report, bool all);

// The members "modules" and "lines" of the report's object.
void WritePlaces(const Report& report, JsonText& json);

}  // namespace stepscope
