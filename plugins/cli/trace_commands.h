// `stepscope info`, `top` and `convert`: what is in a trace, what took the
// time, and the trace in another format.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace stepscope {

// Runs the command that `words` begins with, if it is one of these. Returns the
// exit status: 0 done, 1 something could not be read or written, 2 wrong usage.
std::optional<int> RunTraceCommand(std::span<const std::string> words);

// One each. REQUIRES: `words` begins with the command.
int InfoCommand(std::span<const std::string> words);
int TopCommand(std::span<const std::string> words);
int ConvertCommand(std::span<const std::string> words);

}  // namespace stepscope
