// RunChild: another program, run to its end.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <string>
#include <vector>

namespace measure {

struct Command {
  std::string program;  // a path
  std::vector<std::string> arguments;
  std::chrono::seconds limit = std::chrono::seconds(600);

  // As a person would type it.
  std::string Text() const;
};

// Runs `command` and waits for it; it inherits the environment, and what it
// prints is kept back. Where it fails, the message holds the command and the
// last lines it printed.
// Errors: Unavailable (cannot be started), Aborted (it failed, or a signal
// ended it), DeadlineExceeded (it took longer than the limit and was killed).
absl::Status RunChild(const Command& command);

// True for what RunChild() says of a program that was started and failed.
bool ProgramFailed(const absl::Status& status);

}  // namespace measure
