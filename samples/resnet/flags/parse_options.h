// ParseOptions(): reads the command line of the sample into Options. Also its
// help.
#pragma once

#include <absl/status/statusor.h>

#include <span>
#include <string>

#include "flags/options.h"

namespace resnet {

// Reads `args` (without the program's name) and fills in the defaults that
// depend on other flags: data, side, threads, steps. A value may follow its
// flag after a blank or "=". Errors: InvalidArgument. The message is a whole
// sentence for the user and, for an unknown flag, names the nearest one.
absl::StatusOr<Options> ParseOptions(std::span<const char* const> args);

// All flags with their defaults, 80 columns wide.
std::string HelpText();

}  // namespace resnet
