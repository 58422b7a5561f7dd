// `stepscope compare`, `rules` and `explain`: what came of advice, and what it
// rests on.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace stepscope {

// Runs the command that `words` begins with, if it is one of these. Returns the
// exit status: 0 done, 1 something could not be read or written, 2 wrong usage.
std::optional<int> RunAdviceCommand(std::span<const std::string> words);

// One each. REQUIRES: `words` begins with the command.
int CompareCommand(std::span<const std::string> words);
int RulesCommand(std::span<const std::string> words);
int ExplainCommand(std::span<const std::string> words);

}  // namespace stepscope
