// The whole run, of which a window recorded only a few steps, in words and as
// JSON.
#pragma once

#include <stepscope/report.h>

#include <string>
#include <vector>

#include "report/json_text.h"

namespace stepscope {

// "whole run: 500 steps in 12.1 s, usually 20.1 ms ...", then a line for each
// recurring stall, and one for the other slow steps if they take at least 1 %
// of the run. Empty for too few steps to say anything.
std::vector<std::string> WholeRunLines(const WholeRun& run);

// Writes the member `whole_run` of the report's object.
void WriteWholeRun(const WholeRun& run, JsonText& json);

}  // namespace stepscope
