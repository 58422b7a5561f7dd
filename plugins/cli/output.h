// Where the result of a command goes: the terminal, a pipe or a file.
#pragma once

#include <absl/status/status.h>

#include <string>

namespace stepscope {

// What standard output can show. There are no colours where it is not a
// terminal, where NO_COLOR is set and where TERM is "dumb".
struct Terminal {
  bool color = false;
  int width = 100;
};
Terminal TerminalOfStdout();

// Writes `text` to standard output, or, where `path` is not empty, to that
// file, which appears whole or not at all. Errors: PermissionDenied, NotFound,
// ResourceExhausted, Unavailable.
absl::Status WriteOut(const std::string& text, const std::string& path);

// The same as the end of a command: prints the error, if any, and returns the
// exit status, 0 or 1.
int WriteResult(const std::string& text, const std::string& path);

}  // namespace stepscope
