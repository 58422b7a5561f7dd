#include "words/quantities.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace stepscope {
namespace {

std::string Fixed(double value, int decimals) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string result = text;
  // A small negative number rounds to "-0.00".
  if (result.find_first_not_of("-0.") == std::string::npos) {
    return "0";
  }
  return result;
}

}  // namespace

std::string Number(double value) {
  if (!std::isfinite(value)) return "unknown";
  // The limits are the values from which rounding would add a digit.
  const double size = std::abs(value);
  if (size >= 99.95) return Fixed(value, 0);
  if (size >= 9.995) return Fixed(value, 1);
  return Fixed(value, 2);
}

std::string Times(double value) {
  return value == std::round(value) && std::abs(value) < 1e6 ? Fixed(value, 0)
                                                             : Number(value);
}

std::string Milliseconds(double ms) { return Number(ms) + " ms"; }

std::string Percent(double frac) {
  const double percent = 100 * frac;
  // From 0.95 on, one decimal would be rounded to 1.0.
  return Fixed(percent, std::abs(percent) < 0.95 && percent != 0 ? 1 : 0) +
         " %";
}

std::string Count(int64_t count, std::string_view what, std::string_view many) {
  const std::string number = std::to_string(count) + " ";
  if (count == 1) return number + std::string(what);
  if (!many.empty()) return number + std::string(many);
  return number + std::string(what) + "s";
}

std::string Ordinal(int64_t number) {
  const int64_t last = number % 10;
  const bool teen = number / 10 % 10 == 1;
  const char* ending = teen        ? "th"
                       : last == 1 ? "st"
                       : last == 2 ? "nd"
                       : last == 3 ? "rd"
                                   : "th";
  return std::to_string(number) + ending;
}

std::string FirstOf(const std::vector<int64_t>& numbers) {
  constexpr size_t kShown = 4;
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(numbers.size(), kShown); ++i) {
    texts.push_back(std::to_string(numbers[i]));
  }
  if (numbers.size() > kShown) texts.emplace_back("...");
  return Listed(texts);
}

std::string Listed(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts)
    list += (list.empty() ? "" : ", ") + text;
  return list;
}

std::string ListedWithAnd(const std::vector<std::string>& texts) {
  std::string list;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) list += i + 1 == texts.size() ? " and " : ", ";
    list += texts[i];
  }
  return list;
}

std::string Capitalised(std::string text) {
  const size_t end = std::min(text.find(' '), text.size());
  const bool is_name = std::string_view(text).substr(0, end).find_first_of(
                           "._:/=") != std::string_view::npos;
  if (!text.empty() && !is_name) {
    text[0] =
        static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  }
  return text;
}

std::string MeanCount(double count, std::string_view what,
                      std::string_view many) {
  // A mean that differs from a whole number only by rounding is printed as a
  // count.
  const double rounded = std::round(count);
  if (count >= 0.95 && std::abs(count - rounded) < 0.05) {
    return Count(static_cast<int64_t>(rounded), what, many);
  }
  return Number(count) + " " +
         (many.empty() ? std::string(what) + "s" : std::string(many));
}

std::string Bytes(double bytes) {
  // Decimal units, so that sizes agree with rates in GB/s.
  for (const char* unit : {"bytes", "kB", "MB", "GB"}) {
    // 999.5 would be rounded to 1000.
    if (std::abs(bytes) < 999.5) {
      return Fixed(bytes, *unit == 'b' || bytes >= 99.95 ? 0 : 1) + " " + unit;
    }
    bytes /= 1000;
  }
  return Fixed(bytes, 1) + " TB";
}

std::string Bandwidth(double gb_per_s) { return Number(gb_per_s) + " GB/s"; }

std::string Factor(double factor) {
  // Below 1.1 a second decimal is needed to tell a gain of 4 % from one of 5 %.
  return Fixed(factor, factor < 1.095 ? 2 : 1) + "x";
}

}  // namespace stepscope
