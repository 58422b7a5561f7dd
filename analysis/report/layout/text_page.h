// TextPage: the lines of a report for a terminal, wrapped and coloured.
#pragma once

#include <stepscope/analysis.h>
#include <stepscope/printable.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope {

// The terminal columns that `text` takes, counting one per UTF-8 character.
size_t Columns(std::string_view text);

// Return `text` filled with blanks to `columns`; longer text stays as it is.
std::string PadRight(std::string_view text, size_t columns);
std::string PadLeft(std::string_view text, size_t columns);

// Returns `text`, made printable and at most `columns` wide. If it is longer,
// its end is replaced by "...". REQUIRES: columns > 3.
std::string Clipped(std::string_view text, size_t columns);

// How often something happens per step, without decimals for whole numbers.
std::string CallsText(double calls);

// One thread at a time.
class TextPage {
 public:
  // `options` must outlive the page.
  explicit TextPage(const TextOptions& options) : options_(options) {}

  // Returns `text` in the ANSI colour `code` ("1;31") if the options ask for
  // colours.
  std::string Paint(std::string_view text, const char* code) const;
  void Line(std::string_view text = "") { (text_ += text) += '\n'; }
  // Adds `text` after `label`, wrapped at blanks to the width of the options.
  // Later lines are indented by the label's columns. Empty text adds nothing.
  void Wrapped(std::string_view label, std::string_view text);
  // Returns the lines so far. Whatever texts of a trace they contain, the only
  // escape sequences for the terminal are the colours of Paint().
  std::string Take() { return PrintableLines(text_, options_.color); }

 private:
  const TextOptions& options_;
  std::string text_;
};

}  // namespace stepscope
