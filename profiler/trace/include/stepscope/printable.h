// Printable(): makes text from outside (names in a trace, paths, error
// messages) safe to show.
//
// Terminals obey control characters, and viewers obey the Unicode characters
// that reverse, hide or break text. These characters become visible: "\x1b",
// "\u202e". Bytes that are not UTF-8 become "\x9b". Tabs and line ends become
// blanks, so that a name cannot start a new line.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

std::string Printable(std::string_view text);

// The same for a text of several lines, which keeps its line ends. With
// `colors` it also keeps the colour codes of stepscope's own reports (bold,
// bold red, bold yellow).
std::string PrintableLines(std::string_view text, bool colors = false);

}  // namespace stepscope
