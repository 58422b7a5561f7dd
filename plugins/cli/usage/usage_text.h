// The usage texts: of the whole program, of a command, and the short one that
// follows an error.
#pragma once

#include <span>
#include <string>

#include "usage/command.h"

namespace stepscope {

using Commands = std::span<const Command* const>;

// Where no terminal says otherwise.
inline constexpr int kUsageColumns = 80;

// "--format text|json", "--output FILE, -o FILE".
std::string OptionForm(const Option& option);
// "stepscope top [options] PATH"
std::string CallForm(const Command& command);

// What --help prints, wrapped to `width` columns (at least 40).
std::string UsageText(const Command& command, int width);
std::string ProgramUsageText(Commands commands, int width);
// All options of a command in a few lines: "usage: stepscope top [--by ...".
std::string ShortUsage(const Command& command, int width);

}  // namespace stepscope
