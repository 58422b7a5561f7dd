// Exact conversions of the texts of a ChromeEvent, declared in
// chrome_event_reader.h.
#include <charconv>
#include <cmath>

#include "chrome/reader/chrome_event_reader.h"
#include "rows/field_values.h"

namespace stepscope {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [&](uint32_t byte) {
    out->push_back(static_cast<char>(byte));
  };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// Returns the value of four hexadecimal digits at `at`, or -1.
int32_t HexAt(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  uint32_t value = 0;
  const char* end = text.data() + at + 4;
  const auto result = std::from_chars(text.data() + at, end, value, 16);
  return result.ptr == end ? static_cast<int32_t>(value) : -1;
}

// Returns the code point of the \u escape (or surrogate pair of escapes) whose
// digits begin at `*at`, and moves `*at` past it. A lone surrogate becomes
// U+FFFD. REQUIRES: there are four digits.
uint32_t ReadEscapedCode(std::string_view text, size_t* at) {
  constexpr uint32_t kReplacement = 0xfffd;
  const int32_t first = HexAt(text, *at);
  *at += 4;
  const auto code = static_cast<uint32_t>(first);
  if (code < 0xd800 || code > 0xdfff) return code;
  if (code > 0xdbff || text.substr(*at, 2) != "\\u") return kReplacement;
  const int32_t second = HexAt(text, *at + 2);
  if (second < 0xdc00 || second > 0xdfff) return kReplacement;
  *at += 6;
  return 0x10000 + ((code - 0xd800) << 10) +
         (static_cast<uint32_t>(second) - 0xdc00);
}

}  // namespace

// Kineto writes some numbers as text ("12"), some as reals ("12.0").
std::optional<int64_t> ToInteger(const Field& field) {
  if (field.type != Field::Type::kScalar && field.type != Field::Type::kText)
    return std::nullopt;
  const char* begin = field.text.data();
  const char* end = begin + field.text.size();
  int64_t value = 0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ec == std::errc() && result.ptr == end) return value;
  if (result.ec == std::errc::result_out_of_range && *begin != '-') {
    // Addresses use all 64 bits.
    uint64_t bits = 0;
    const auto wide = std::from_chars(begin, end, bits);
    if (wide.ec == std::errc() && wide.ptr == end)
      return static_cast<int64_t>(bits);
  }
  const std::optional<double> real = ToReal(field);
  if (!real || std::abs(*real) >= 9.2e18) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<double> ToReal(const Field& field) {
  if (field.type != Field::Type::kScalar && field.type != Field::Type::kText)
    return std::nullopt;
  double value = 0;
  const char* end = field.text.data() + field.text.size();
  const auto result = std::from_chars(field.text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(value))
    return std::nullopt;
  return value;
}

// Uses no double, because microseconds since the epoch with three decimals need
// more than its 53 bits.
std::optional<int64_t> ToNanoseconds(const Field& field) {
  if (field.type != Field::Type::kScalar && field.type != Field::Type::kText)
    return std::nullopt;
  const char* at = field.text.data();
  const char* const end = at + field.text.size();
  const bool negative = at < end && *at == '-';
  if (negative) ++at;
  if (at == end || !IsDigit(*at)) return std::nullopt;

  // digits x 10^scale microseconds.
  constexpr uint64_t kRoom = UINT64_MAX / 10 - 1;
  uint64_t digits = 0;
  int64_t scale = 0;
  bool round_up = false;
  bool cut = false;
  const auto take = [&](char digit, bool fraction) {
    if (cut || digits > kRoom) {
      // Digits that do not fit are dropped; the first of them rounds.
      if (!cut) round_up = digit >= '5';
      cut = true;
      if (!fraction) ++scale;
      return;
    }
    digits = digits * 10 + static_cast<uint64_t>(digit - '0');
    if (fraction) --scale;
  };
  for (; at < end && IsDigit(*at); ++at) take(*at, false);
  if (at < end && *at == '.') {
    ++at;
    if (at == end || !IsDigit(*at)) return std::nullopt;
    for (; at < end && IsDigit(*at); ++at) take(*at, true);
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    if (at < end && *at == '+') ++at;
    int exponent = 0;
    const auto result = std::from_chars(at, end, exponent);
    if (result.ec != std::errc() || exponent > 40 || exponent < -40)
      return std::nullopt;
    at = result.ptr;
    scale += exponent;
  }
  if (at != end) return std::nullopt;

  // A nanosecond value has three digits more than one in microseconds. The
  // loops then bring the scale to 0, rounding half up.
  for (scale += 3; scale > 0 && digits != 0; --scale) {
    if (digits > kRoom) return std::nullopt;
    digits *= 10;
  }
  for (; scale < 0 && (digits != 0 || round_up); ++scale) {
    round_up = digits % 10 >= 5;
    digits /= 10;
  }
  if (round_up) ++digits;
  if (digits > static_cast<uint64_t>(kLargestNs)) return std::nullopt;
  const auto value = static_cast<int64_t>(digits);
  return negative ? -value : value;
}

std::string_view Unescape(std::string_view text, std::string* scratch) {
  size_t at = text.find('\\');
  if (at == std::string_view::npos) return text;
  scratch->assign(text.substr(0, at));
  while (at < text.size()) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      scratch->push_back(text[at++]);
      continue;
    }
    const char escape = text[at + 1];
    at += 2;
    switch (escape) {
      case 'b':
        scratch->push_back('\b');
        break;
      case 'f':
        scratch->push_back('\f');
        break;
      case 'n':
        scratch->push_back('\n');
        break;
      case 'r':
        scratch->push_back('\r');
        break;
      case 't':
        scratch->push_back('\t');
        break;
      case '"':
      case '\\':
      case '/':
        scratch->push_back(escape);
        break;
      default:
        if (escape == 'u' && HexAt(text, at) >= 0) {
          AppendUtf8(ReadEscapedCode(text, &at), scratch);
        } else {
          // This is no escape, but a path whose backslashes were not doubled.
          scratch->push_back('\\');
          scratch->push_back(escape);
        }
    }
  }
  return *scratch;
}

}  // namespace stepscope
