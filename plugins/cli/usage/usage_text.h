// The usage texts: for the whole program, for a command, and the short text
// that follows an error.
#pragma once

#include <span>
#include <string>

#include "usage/command.h"

namespace stepscope {

using Commands = std::span<const Command* const>;

// The width if there is no terminal.
inline constexpr int kUsageColumns = 80;

// Returns, for example, "--format text|json" or "--output FILE, -o FILE".
std::string OptionForm(const Option& option);
// Returns, for example, "stepscope top [options] PATH".
std::string CallForm(const Command& command);

// The output of --help, wrapped to `width` columns (at least 40).
std::string UsageText(const Command& command, int width);
std::string ProgramUsageText(Commands commands, int width);
// Returns all options of a command in a few lines: "usage: stepscope top [--by
// ...".
std::string ShortUsage(const Command& command, int width);

}  // namespace stepscope
