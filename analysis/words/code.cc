#include "words/code.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

namespace stepscope {
namespace {

// Words of both languages that stand alone in a line of code.
constexpr std::array<std::string_view, 12> kKeywords = {
    "with",   "for", "in",  "as",   "import", "from",
    "return", "if",  "not", "auto", "const",  "del"};

// Punctuation that prose has, too.
std::string_view WithoutMarks(std::string_view word) {
  while (!word.empty() &&
         std::string_view(",;:.").find(word.back()) != std::string_view::npos) {
    word.remove_suffix(1);
  }
  return word;
}

// Returns the length of the first word of `text`. It ends at a blank outside of
// brackets and quotes.
size_t WordLength(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  size_t end = 0;
  for (; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ' ' && depth <= 0) break;
  }
  return end;
}

enum class WordKind { kProse, kCode, kEither };

// REQUIRES: no punctuation at the end of `word`.
WordKind KindOf(std::string_view word) {
  const bool has_letter = std::ranges::any_of(word, [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0;
  });
  const bool is_variable = word.size() == 1 && word != "a";
  if (!has_letter || is_variable || std::ranges::count(kKeywords, word) > 0) {
    return WordKind::kEither;
  }
  // A bracket or a quote at the start is a remark: "(static shapes)".
  const bool is_code =
      word.find_first_of("=._:[(<") != std::string_view::npos &&
      word[0] != '(' && word[0] != '"' && word != "e.g" && word != "i.e";
  return is_code ? WordKind::kCode : WordKind::kProse;
}

}  // namespace

bool IsCode(std::string_view text) {
  // A comment is part of the code before it.
  text = text.substr(0, std::min(text.find("  # "), text.find("  // ")));
  bool any = false;
  while (!text.empty()) {
    const size_t length = WordLength(text);
    const WordKind kind = KindOf(WithoutMarks(text.substr(0, length)));
    if (kind == WordKind::kProse) return false;
    any |= kind == WordKind::kCode;
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return any;
}

std::vector<TextPart> TextPartsOf(std::string_view text) {
  if (IsCode(text)) return {{text, true}};
  std::vector<TextPart> parts;
  size_t prose = 0;  // where the prose begins that is not in a part yet
  for (size_t at = 0; at < text.size();) {
    const size_t length = WordLength(text.substr(at));
    const std::string_view word = WithoutMarks(text.substr(at, length));
    if (KindOf(word) == WordKind::kCode) {
      if (at > prose) parts.push_back({text.substr(prose, at - prose), false});
      parts.push_back({word, true});
      prose = at + word.size();
    }
    at += length + 1;
  }
  if (prose < text.size()) parts.push_back({text.substr(prose), false});
  return parts;
}

}  // namespace stepscope
