#include "json/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "json/char_masks.h"

namespace stepscope {
namespace {

// Marks the bytes that need no escape in a JSON string. Names are nearly always
// plain ASCII, so whole runs of plain bytes are copied at once.
constexpr std::array<bool, 256> MakePlain() {
  std::array<bool, 256> plain = {};
  for (int byte = 0x20; byte < 0x7F; ++byte) plain[byte] = true;
  plain['"'] = plain['\\'] = false;
  return plain;
}
constexpr std::array<bool, 256> kPlain = MakePlain();

// Returns the length of the UTF-8 sequence at `at`, or 0 if it is invalid.
// Overlong forms, surrogates and numbers beyond U+10FFFF are invalid, too.
size_t SequenceLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;
    if (lead == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

void AppendEscape(char c, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default: {
      constexpr char kHex[] = "0123456789abcdef";
      const auto byte = static_cast<uint8_t>(c);
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
}

template <typename Number>
void AppendNumber(Number value, std::string& out) {
  char digits[40];
  const auto [end, error] =
      std::to_chars(digits, digits + sizeof(digits), value);
  out.append(digits, end);
}

}  // namespace

void AppendQuoted(std::string_view text, std::string& out) {
  out += '"';
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at;
    while (end < text.size() && kPlain[static_cast<uint8_t>(text[end])]) ++end;
    out.append(text, at, end - at);
    if (end == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[end]);
    if (byte < 0x80) {
      AppendEscape(text[end], out);
      at = end + 1;
    } else if (const size_t length = SequenceLength(text, end)) {
      out.append(text, end, length);
      at = end + length;
    } else {
      out += kReplacement;
      at = end + 1;
    }
  }
  out += '"';
}

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text, at);
    out += length == 0 ? kReplacement : text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return out;
}

void AppendInt(int64_t value, std::string& out) { AppendNumber(value, out); }
void AppendUint(uint64_t value, std::string& out) { AppendNumber(value, out); }

void AppendDouble(double value, std::string& out) {
  if (std::isfinite(value)) {
    AppendNumber(value, out);
  } else {
    out += "null";
  }
}

// Does not convert to double, whose shortest text would have digits that the
// float never had: 0.1 would become 0.10000000149011612.
void AppendFloat(float value, std::string& out) {
  if (std::isfinite(value)) {
    AppendNumber(value, out);
  } else {
    out += "null";
  }
}

// Computes in integers, so that the decimals are exact.
void AppendMicros(int64_t ns, std::string& out) {
  uint64_t rest = static_cast<uint64_t>(ns);
  if (ns < 0) {
    out += '-';
    rest = 0 - rest;
  }
  char digits[24];
  char* end = std::to_chars(digits, digits + sizeof(digits), rest / 1000).ptr;
  const auto frac = static_cast<unsigned>(rest % 1000);
  end[0] = '.';
  end[1] = static_cast<char>('0' + frac / 100);
  end[2] = static_cast<char>('0' + frac / 10 % 10);
  end[3] = static_cast<char>('0' + frac % 10);
  out.append(digits, end + 4);
}

void JsonWriter::Key(std::string_view key) {
  Item();
  out_ += '"';
  out_ += key;
  out_ += "\": ";
}

void JsonWriter::Item() {
  if (!first_) out_ += ", ";
  first_ = false;
}

}  // namespace stepscope
