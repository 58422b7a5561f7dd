// The properties of the terminal, if there is one, and text that fits its
// width.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// What standard output can show. No colours if it is not a terminal, if
// NO_COLOR is set, or if TERM is "dumb".
struct Terminal {
  bool color = false;
  int width = 100;
};
Terminal TerminalOfStdout();
// Returns the columns of the terminal behind `descriptor`, 40 to 160; 0 if it
// is not a terminal.
int TerminalColumns(int descriptor);

// Returns `text` with each line that is longer than `width` broken at blanks.
// Continuation lines are indented to the start of the line's text. With width 0
// the text is unchanged.
std::string FitLines(std::string_view text, int width);

}  // namespace stepscope
