#include "report/layout/text_page.h"

#include <algorithm>
#include <cmath>

#include "words/quantities.h"

namespace stepscope {

// Every character of UTF-8 has one byte that is not 10xxxxxx.
size_t Columns(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string PadRight(std::string_view text, size_t columns) {
  const size_t width = Columns(text);
  return std::string(text) +
         std::string(columns - std::min(columns, width), ' ');
}

std::string PadLeft(std::string_view text, size_t columns) {
  const size_t width = Columns(text);
  return std::string(columns - std::min(columns, width), ' ') +
         std::string(text);
}

std::string Clipped(std::string_view raw, size_t columns) {
  std::string text = Printable(raw);
  if (Columns(text) <= columns) return text;
  // Leaves three columns for "...", and never cuts inside a character.
  size_t end = 0;
  for (size_t used = 0; end < text.size(); ++end) {
    const bool begins_character =
        (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (begins_character && used++ == columns - 3) break;
  }
  return text.substr(0, end) + "...";
}

std::string CallsText(double calls) {
  // Means over steps are rarely exactly whole, and large counts need no
  // decimals.
  const bool whole = std::abs(calls - std::round(calls)) < 0.05 || calls >= 100;
  return whole ? std::to_string(std::llround(calls)) : Number(calls);
}

std::string TextPage::Paint(std::string_view text, const char* code) const {
  if (!options_.color) return std::string(text);
  return std::string("\x1b[") + code + "m" + std::string(text) + "\x1b[0m";
}

void TextPage::Wrapped(std::string_view label, std::string_view raw) {
  if (raw.empty()) return;
  const std::string text = Printable(raw);
  const size_t indent = Columns(label);
  const size_t width = static_cast<size_t>(std::max(options_.width, 40));
  std::string line(label);
  size_t used = indent;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const size_t columns = Columns(word);
    // A word that is longer than the width gets its own line.
    if (used > indent && used + 1 + columns > width) {
      Line(line);
      line = std::string(indent, ' ');
      used = indent;
    }
    if (used > indent) {
      line += ' ';
      ++used;
    }
    line += word;
    used += columns;
    at = end + 1;
  }
  Line(line);
}

}  // namespace stepscope
