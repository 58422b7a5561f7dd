// Runs commands as a user types them, and returns their output and exit status.
#pragma once

#include <string>

#include "support/temp_folder.h"

namespace stepscope {

struct Outcome {
  int status = -1;  // exit status, or 1000 + the signal that ended it
  std::string out;
  std::string err;
};

// Runs `command` in a shell with empty standard input. Its output goes through
// the files "out" and "err" in `folder`.
Outcome RunShell(const std::string& command, const TempFolder& folder);

}  // namespace stepscope
