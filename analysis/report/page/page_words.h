// The sentences of a page as JSON. The other reports print the same sentences.
#pragma once

#include <stepscope/compare.h>
#include <stepscope/report.h>

#include <string>

#include "report/json_text.h"

namespace stepscope {

// The most important sentence for a reader: "2 changes are predicted to cut the
// step from 80.3 to 22.0 ms, 3.6x (likely 3.1x to 3.9x)."
std::string HeadlineInWords(const Report& report);

// Write the value of a key that the caller has written.
void WriteWords(const Report& report, JsonText& json);
void WriteWords(const Comparison& comparison, JsonText& json);

}  // namespace stepscope
