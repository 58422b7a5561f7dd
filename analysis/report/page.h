// Page: lines of a terminal, wrapped and painted.
#pragma once

#include <stepscope/analysis.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace stepscope {

// Columns on a terminal: UTF-8 continuation bytes take none.
size_t Columns(std::string_view text);

// `text` without control characters, which would play with the reader's
// terminal.
std::string Printable(std::string_view text);

class Page {
 public:
  // `options` must outlive the page.
  explicit Page(const TextOptions& options) : options_(options) {}

  // `text` in an ANSI colour, where the options ask for colours.
  std::string Paint(std::string_view text, const char* code) const;
  void Line(std::string_view text = "") { (text_ += text) += '\n'; }
  // `text` behind a label, broken at blanks, later lines indented under it.
  // Nothing if it is empty.
  void Wrapped(std::string_view label, std::string_view text);
  std::string Take() { return std::move(text_); }

 private:
  const TextOptions& options_;
  std::string text_;
};

}  // namespace stepscope
