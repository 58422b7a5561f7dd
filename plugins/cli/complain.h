// Complain: one line on standard error, with the program's name.
#pragma once

#include <absl/status/status.h>

#include <string_view>

namespace stepscope {

void Complain(std::string_view message);
void Complain(const absl::Status& status);
// Complains and gives the exit status of wrong usage, 2.
int UsageError(const absl::Status& status);

}  // namespace stepscope
