// Completion of the command line in bash, zsh and fish, made from the commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "usage/usage_text.h"

namespace stepscope {

inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// The possible words of arguments that are not paths.
struct CompletedWords {
  std::vector<std::string> rules;     // IDs
  std::vector<std::string> settings;  // keys of what-if
};

// Returns a script for the shell, to be sourced or installed. REQUIRES: `shell`
// is one of kShells.
std::string CompletionScript(std::string_view shell, Commands commands,
                             const CompletedWords& words);

}  // namespace stepscope
