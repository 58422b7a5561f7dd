// Writes the result of a command to the terminal, a pipe or a file.
#pragma once

#include <absl/status/status.h>

#include <span>
#include <string>

#include "terminal.h"

namespace stepscope {

// Returns the columns that a result written to `path` (as in WriteOut()) may
// take: those of the terminal, or `otherwise` if it does not go to a terminal.
int WidthFor(const std::string& path, int otherwise);

// InvalidArgument if the existing file `path` is one of the traces that
// `inputs` (files, folders, log directories) stand for.
absl::Status MayReplace(const std::string& path,
                        std::span<const std::string> inputs);

// Writes `text` to the file `path` or, if `path` is empty or "-", to standard
// output. A file appears completely or not at all. Errors: PermissionDenied,
// NotFound, ResourceExhausted, Unavailable.
absl::Status WriteOut(const std::string& text, const std::string& path);

// For the end of a command: calls WriteOut(), prints an error, and returns the
// exit status, 0 or 1.
int WriteResult(const std::string& text, const std::string& path);

}  // namespace stepscope
