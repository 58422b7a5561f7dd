#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "report/layout/text_page.h"

namespace stepscope {
namespace {

// Counts terminal columns. Escape sequences of colours take none.
size_t ShownColumns(std::string_view text) {
  size_t columns = Columns(text);
  for (size_t at = text.find('\x1b'); at != std::string_view::npos;
       at = text.find('\x1b', at + 1)) {
    // Colours are the only sequences that are printed; they end with an "m".
    const size_t end = text.find('m', at);
    if (end == std::string_view::npos) break;
    columns -= end + 1 - at;
  }
  return columns;
}

// Returns the columns before a line's text: up to the last pair of blanks
// within its first `most` columns, or else its indentation.
size_t LabelColumns(std::string_view line, size_t most) {
  const size_t gap = line.substr(0, most).rfind("  ");
  const size_t text =
      line.find_first_not_of(' ', gap == std::string_view::npos ? 0 : gap);
  return text == std::string_view::npos || text > most
             ? 0
             : ShownColumns(line.substr(0, text));
}

// Appends `line`, broken at blanks as rarely as possible.
void AddFitted(std::string_view line, size_t width, std::string& out) {
  const size_t indent = LabelColumns(line, width / 2);
  size_t used = 0;
  bool is_first = true;
  while (!line.empty()) {
    // The next word, with the blanks before it.
    const size_t word = std::min(line.find_first_not_of(' '), line.size());
    const size_t end = std::min(line.find(' ', word), line.size());
    const std::string_view piece = line.substr(0, end);
    const size_t columns = ShownColumns(piece);
    // `used > indent` keeps a word that is wider than the terminal from being
    // pushed from line to line.
    if (!is_first && used > indent && used + columns > width) {
      out += '\n' + std::string(indent, ' ');
      out += piece.substr(word);
      used = indent + columns - word;
    } else {
      out += piece;
      used += columns;
    }
    is_first = false;
    line.remove_prefix(end);
  }
  out += '\n';
}

}  // namespace

Terminal TerminalOfStdout() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  // https://no-color.org: any value except an empty one counts.
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  terminal.color = (no_color == nullptr || *no_color == '\0') &&
                   (term == nullptr || std::string_view(term) != "dumb");
  if (const int columns = TerminalColumns(STDOUT_FILENO); columns > 0)
    terminal.width = columns;
  return terminal;
}

int TerminalColumns(int descriptor) {
  // The limits: lines of more than 160 columns are hard to read, and in fewer
  // than 40 nothing fits.
  winsize size = {};
  if (isatty(descriptor) == 0 || ioctl(descriptor, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0) {
    return 0;
  }
  return std::clamp<int>(size.ws_col, 40, 160);
}

std::string FitLines(std::string_view text, int width) {
  if (width <= 0) return std::string(text);
  std::string fitted;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    AddFitted(text.substr(0, end), static_cast<size_t>(width), fitted);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return fitted;
}

}  // namespace stepscope
