// `stepscope analyze`: reads every trace that the paths mean and prints the
// report of each.
#pragma once

#include "arguments.h"

namespace stepscope {

// Returns the exit status: 0 if at least one trace was analysed, 1 if none
// could be read or the report could not be written. Complaints go to standard
// error, a line each.
int RunAnalyze(const Arguments& arguments);

}  // namespace stepscope
