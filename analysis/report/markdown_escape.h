// Escaping of text from a trace for Markdown.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// Returns `text` for a sentence or a table cell, escaped so that nothing in it
// starts markup. Line ends become blanks.
std::string MarkdownText(std::string_view text);

// Returns `text` as a code span. Backquotes become apostrophes, and line ends
// become blanks. In a table, bars are escaped.
std::string MarkdownCode(std::string_view text, bool in_table = false);

}  // namespace stepscope
