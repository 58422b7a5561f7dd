// Where a report goes: the terminal, a pipe or a file.
#pragma once

#include <absl/status/status.h>

#include <string>

namespace stepscope {

// What standard output can show. Not a terminal, NO_COLOR set or TERM "dumb":
// no colours.
struct Terminal {
  bool color = false;
  int width = 100;
};
Terminal TerminalOfStdout();

// Writes `text` to standard output, or, where `path` is not empty, to that
// file, which appears whole or not at all. Errors: PermissionDenied, NotFound,
// ResourceExhausted, Unavailable.
absl::Status WriteOut(const std::string& text, const std::string& path);

}  // namespace stepscope
