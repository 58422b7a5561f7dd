#include <stepscope/printable.h>

#include <array>
#include <cstdint>

namespace stepscope {
namespace {

// The first character of a text and its length in bytes, 0 if it is not UTF-8.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};

Character FirstOf(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<uint8_t>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3Fu);
  }
  // Reject overlong forms, surrogates, and codes above the last one of Unicode.
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || (code >= 0xD800 && code <= 0xDFFF) ||
      code > 0x10FFFF) {
    return {};
  }
  return {code, bytes};
}

// True for characters that a viewer obeys instead of showing them: control and
// invisible characters, line and paragraph separators, bidirectional marks,
// embeddings, overrides and isolates, annotations, and tags (Unicode 16,
// categories Cc, Cf, Zl and Zp).
bool IsHidden(uint32_t code) {
  struct Span {
    uint32_t first;
    uint32_t last;
  };
  static constexpr Span kHidden[] = {
      {0x00, 0x1F},     {0x7F, 0x9F},     {0xAD, 0xAD},      {0x61C, 0x61C},
      {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
      {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
  for (const Span& span : kHidden) {
    if (code >= span.first && code <= span.last) return true;
  }
  return false;
}

void AppendHex(uint32_t value, int digits, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    out += kHex[value >> shift & 15];
}

void AppendVisible(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += "\\x";
    AppendHex(code, 2, out);
  } else if (code <= 0xFFFF) {
    out += "\\u";
    AppendHex(code, 4, out);
  } else {
    out += "\\U";
    AppendHex(code, 8, out);
  }
}

// Returns the length of the ANSI escape sequence at the start of `text` if it
// is one that TextPage writes, and 0 otherwise. Others are not let through,
// because a name from a trace may contain sequences that hide the text behind
// them.
size_t ColorBytes(std::string_view text) {
  for (std::string_view code :
       {"\x1b[m", "\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m"}) {
    if (text.starts_with(code)) return code.size();
  }
  return 0;
}

std::string Shown(std::string_view text, bool lines, bool colors) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t used = 1;
    if (const size_t color = colors ? ColorBytes(text) : 0; color > 0) {
      out += text.substr(0, color);
      used = color;
    } else if (text[0] == '\n' && lines) {
      out += '\n';
    } else if (text[0] == '\n' || text[0] == '\r' || text[0] == '\t') {
      out += ' ';
    } else if (const Character first = FirstOf(text); first.bytes == 0) {
      out += "\\x";
      AppendHex(static_cast<uint8_t>(text[0]), 2, out);
    } else if (IsHidden(first.code)) {
      AppendVisible(first.code, out);
      used = first.bytes;
    } else {
      out += text.substr(0, first.bytes);
      used = first.bytes;
    }
    text.remove_prefix(used);
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) {
  return Shown(text, false, false);
}

std::string PrintableLines(std::string_view text, bool colors) {
  return Shown(text, true, colors);
}

}  // namespace stepscope
