#include "json/json_repair.h"

#include <cstddef>
#include <cstdint>

#include "json/char_masks.h"

namespace stepscope {
namespace {

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
         (c >= 'A' && c <= 'F');
}

// Returns the length of the UTF-8 character at the start of `text`; 0 if it is
// invalid.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
  };
  const auto follows = [&](size_t at, unsigned low, unsigned high) {
    return byte(at) >= low && byte(at) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : 0xbf;
    return follows(1, low, high) && follows(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
    return follows(1, low, high) && follows(2, 0x80, 0xbf) &&
                   follows(3, 0x80, 0xbf)
               ? 4
               : 0;
  }
  return 0;
}

// Appends the backslash at `at` with the character it escapes, or two
// backslashes if it escapes nothing. Returns the number of bytes used. Names of
// files and kernels may have single backslashes.
size_t RepairEscape(std::string_view text, size_t at, std::string* out) {
  const char next = at + 1 < text.size() ? text[at + 1] : '\0';
  const std::string_view digits =
      at + 2 < text.size() ? text.substr(at + 2, 4) : std::string_view();
  bool known = next != '\0' && std::string_view("\"\\/bfnrt").find(next) !=
                                   std::string_view::npos;
  if (next == 'u') {
    known = digits.size() == 4;
    for (char digit : digits) known = known && IsHex(digit);
  }
  if (!known) {
    out->append("\\\\");
    return 1;
  }
  out->append(text.substr(at, 2));
  return 2;
}

void AppendControl(char c, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  out->append("\\u00");
  out->push_back(kHex[(c >> 4) & 15]);
  out->push_back(kHex[c & 15]);
}

bool IsStructure(char c) {
  return std::string_view("{}[]:,\"").find(c) != std::string_view::npos;
}

// True if `word` may stand in JSON without quotes.
bool IsScalar(std::string_view word) {
  if (word == "true" || word == "false" || word == "null") return true;
  const size_t digit = word[0] == '-' ? 1 : 0;
  if (digit == word.size() || word[digit] < '0' || word[digit] > '9')
    return false;
  return word.find_first_not_of("0123456789+-.eE") == std::string_view::npos;
}

}  // namespace

// Makes one pass with two states. Inside a string it escapes what must not be
// there; outside it replaces words that are not JSON, such as NaN.
std::string RepairJson(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  size_t comma = std::string::npos;  // in `out`, followed by blanks only
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        at += RepairEscape(text, at, &out);
        continue;
      }
      if (c == '"') in_string = false;
      if (static_cast<unsigned char>(c) < 0x20) {
        AppendControl(c, &out);
        ++at;
        continue;
      }
      const size_t length = Utf8Length(text.substr(at, 4));
      out.append(length == 0 ? kReplacement : text.substr(at, length));
      at += length == 0 ? 1 : length;
      continue;
    }
    if (IsBlank(c)) {
      out.push_back(c);
      ++at;
    } else if (IsStructure(c)) {
      // JSON allows no comma before a closing bracket.
      if ((c == '}' || c == ']') && comma != std::string::npos)
        out.erase(comma, 1);
      comma = c == ',' ? out.size() : std::string::npos;
      in_string = c == '"';
      out.push_back(c);
      ++at;
    } else {
      size_t end = at;
      while (end < text.size() && !IsBlank(text[end]) &&
             !IsStructure(text[end]))
        ++end;
      const std::string_view word = text.substr(at, end - at);
      out.append(IsScalar(word) ? word : std::string_view("null"));
      comma = std::string::npos;
      at = end;
    }
  }
  return out;
}

}  // namespace stepscope
