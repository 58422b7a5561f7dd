#include "errors.h"

#include <stepscope/printable.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "terminal.h"

namespace stepscope {
namespace {

std::string_view MessageOf(const absl::Status& status) {
  const auto message = status.message();
  return {message.data(), message.size()};
}

}  // namespace

// Prints one line, for scripts. On a terminal, lines are broken at its width.
void PrintError(std::string_view message) {
  const std::string line = "stepscope: " + Printable(message) + "\n";
  const std::string text = FitLines(line, TerminalColumns(STDERR_FILENO));
  std::fputs(text.c_str(), stderr);
}

void PrintError(const absl::Status& status) { PrintError(MessageOf(status)); }

int UsageError(std::string_view message) {
  PrintError(message);
  return 2;
}

int UsageError(const absl::Status& status) {
  return UsageError(MessageOf(status));
}

}  // namespace stepscope
