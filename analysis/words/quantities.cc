#include "words/quantities.h"

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
  // The limits are where rounding would add a digit.
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
  return Fixed(percent, std::abs(percent) < 0.95 && percent != 0 ? 1 : 0) +
         " %";
}

std::string Count(int64_t count, std::string_view what, std::string_view many) {
  const std::string number = std::to_string(count) + " ";
  if (count == 1) return number + std::string(what);
  if (!many.empty()) return number + std::string(many);
  return number + std::string(what) + "s";
}

std::string Bytes(double bytes) {
  for (const char* unit : {"bytes", "kB", "MB", "GB"}) {
    if (std::abs(bytes) < 999.5) {
      return Fixed(bytes, *unit == 'b' || bytes >= 99.95 ? 0 : 1) + " " + unit;
    }
    bytes /= 1000;
  }
  return Fixed(bytes, 1) + " TB";
}

std::string Factor(double factor) {
  return Fixed(factor, factor < 1.095 ? 2 : 1) + "x";
}

}  // namespace stepscope
