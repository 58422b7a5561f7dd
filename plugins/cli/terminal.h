// What the terminal shows, if there is one, and text that fits its width.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// What standard output can show. There are no colours where it is not a
// terminal, where NO_COLOR is set and where TERM is "dumb".
struct Terminal {
  bool color = false;
  int width = 100;
};
Terminal TerminalOfStdout();
// The columns of the terminal behind `descriptor`, 40 to 160; 0 if it is none.
int TerminalColumns(int descriptor);

// `text` with each line that is longer than `width` broken at blanks; what
// follows is indented to where the line's text begins. 0: as it is.
std::string FitLines(std::string_view text, int width);

}  // namespace stepscope
