// Words inside Markdown.
#pragma once

#include <string>
#include <string_view>

namespace stepscope {

// Text inside a table cell or a sentence: nothing in it may start markup.
std::string MarkdownText(std::string_view text);

// A code span that survives backquotes and line ends in its text, and bars
// where it stands in a table.
std::string MarkdownCode(std::string_view text, bool in_table = false);

}  // namespace stepscope
