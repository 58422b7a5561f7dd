// Error messages of the program: one line on standard error each, prefixed with
// "stepscope: ".
#pragma once

#include <absl/status/status.h>

#include <string_view>

namespace stepscope {

void PrintError(std::string_view message);
void PrintError(const absl::Status& status);
// Prints the message and returns 2, the exit status of wrong usage.
int UsageError(std::string_view message);
int UsageError(const absl::Status& status);

}  // namespace stepscope
