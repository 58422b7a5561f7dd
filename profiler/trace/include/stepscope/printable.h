// Printable: texts from outside (names in a trace, paths, error messages) as
// they may be shown.
//
// A terminal acts on control characters, and any viewer on the characters of
// Unicode that reverse, hide or break text. These become visible: "\x1b",
// "\u202e". Bytes that are no UTF-8 become "\x9b". Tabs and line ends become
// blanks, as a name must not begin a line.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

std::string Printable(std::string_view text);

// The same for a text of several lines, whose ends stay. With `colors` the
// colour codes of our own reports (bold, bold red, bold yellow) stay, too.
std::string PrintableLines(std::string_view text, bool colors = false);

}  // namespace stepscope
