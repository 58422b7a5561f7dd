// Commands as a person types them: what they print and how they end.
#pragma once

#include <string>

#include "support/temp_folder.h"

namespace stepscope {

struct Outcome {
  int status = -1;  // exit status; 1000 + the signal where one ended it
  std::string out;
  std::string err;
};

// Runs `command` in a shell, with nothing to read. What it prints passes
// through the files "out" and "err" of `folder`.
Outcome RunShell(const std::string& command, const TempFolder& folder);

}  // namespace stepscope
