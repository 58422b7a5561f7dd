// PageData(): JSON as it is embedded in a page.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stepscope {

// How much of a report a page holds. Texts are counted in characters.
struct PageLimits {
  size_t sentence = 1500;  // evidence, fixes and the like
  size_t name = 240;       // any other text
  size_t rows = 1000;      // of the lists of steps and of memory peaks
};

// Returns `json` without white space, with long texts cut, the lists of steps
// and memory peaks cut after `limits.rows` elements, and fractions rounded to
// seven digits. The result is JSON in which no character can end or open an
// HTML element: <, >, & and the line separators of JavaScript are escaped.
// O(n).
// REQUIRES: `json` is valid, as JsonText writes it.
std::string PageData(std::string_view json, const PageLimits& limits);

// Returns at most `most` bytes of `text`, escaped for an HTML element or
// attribute. Control characters except the line feed become blanks.
std::string HtmlText(std::string_view text, size_t most);

}  // namespace stepscope
