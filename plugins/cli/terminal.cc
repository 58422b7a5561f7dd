#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "report/text_page.h"

namespace stepscope {
namespace {

// The bytes of a line before its text: up to the last two blanks in a row of
// its first columns, else its indentation.
size_t LabelSize(std::string_view line, size_t most) {
  const size_t gap = line.substr(0, most).rfind("  ");
  if (gap != std::string_view::npos) {
    const size_t text = line.find_first_not_of(' ', gap);
    if (text != std::string_view::npos) return text;
  }
  return std::min(line.find_first_not_of(' '), line.size());
}

}  // namespace

Terminal TerminalOfStdout() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  // https://no-color.org: any value but an empty one counts.
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  terminal.color = (no_color == nullptr || *no_color == '\0') &&
                   (term == nullptr || std::string_view(term) != "dumb");
  if (const int columns = TerminalColumns(STDOUT_FILENO); columns > 0)
    terminal.width = columns;
  return terminal;
}

int TerminalColumns(int descriptor) {
  // Longer lines are hard to read, and in less than 40 columns nothing fits.
  winsize size = {};
  if (isatty(descriptor) == 0 || ioctl(descriptor, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0) {
    return 0;
  }
  return std::clamp<int>(size.ws_col, 40, 160);
}

std::string FitLines(std::string_view text, int width) {
  if (width <= 0) return std::string(text);
  TextOptions options;
  options.width = width;
  TextPage page(options);
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (Columns(line) <= static_cast<size_t>(width)) {
      page.Line(line);
      continue;
    }
    const size_t label = LabelSize(line, static_cast<size_t>(width) / 2);
    page.Wrapped(line.substr(0, label), line.substr(label));
  }
  return page.Take();
}

}  // namespace stepscope
