#include "report/markdown_escape.h"

#include <stepscope/printable.h>

namespace stepscope {

std::string MarkdownText(std::string_view text) {
  std::string escaped;
  for (char c : Printable(text)) {
    if (std::string_view("\\`*_{}[]<>|#").find(c) != std::string_view::npos) {
      escaped += '\\';
    }
    escaped += c;
  }
  return escaped;
}

std::string MarkdownCode(std::string_view text, bool in_table) {
  std::string code;
  for (char c : Printable(text)) {
    // A backquote would end the code span, and cannot be escaped in one.
    if (c == '`') c = '\'';
    // GitHub ends a cell at a bar even inside code.
    if (c == '|' && in_table) code += '\\';
    code += c;
  }
  return "`" + code + "`";
}

}  // namespace stepscope
