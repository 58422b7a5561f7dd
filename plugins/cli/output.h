// Where the result of a command goes: the terminal, a pipe or a file.
#pragma once

#include <absl/status/status.h>

#include <string>

#include "terminal.h"

namespace stepscope {

// The columns that a result written to `path` (as for WriteOut()) may take:
// those of the terminal, or `otherwise` where it does not go to one.
int WidthFor(const std::string& path, int otherwise);

// Writes `text` to standard output, or, where `path` is neither empty nor "-",
// to that file, which appears whole or not at all. Errors: PermissionDenied,
// NotFound, ResourceExhausted, Unavailable.
absl::Status WriteOut(const std::string& text, const std::string& path);

// The same as the end of a command: prints the error, if any, and returns the
// exit status, 0 or 1.
int WriteResult(const std::string& text, const std::string& path);

}  // namespace stepscope
