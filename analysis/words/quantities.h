// Formats numbers with units for reports: at most three significant digits,
// never "-0". The rules' sentences and all report formats use these functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepscope {

// "148", "41.3", "3.14", "0.04": three digits, at most two decimals; "unknown"
// for NaN and infinity.
std::string Number(double value);
// "4" for a whole number, else as Number().
std::string Times(double value);
// "41.3 ms"
std::string Milliseconds(double ms);
// "26 %", "0.4 %" from a fraction (0.26, 0.004).
std::string Percent(double frac);
// "1 step", "3 steps". `what` is the singular; `many` the plural where adding
// "s" is wrong ("launches").
std::string Count(int64_t count, std::string_view what,
                  std::string_view many = "");
// "1st", "2nd", "13th"
std::string Ordinal(int64_t number);
// "1, 2, 3, 4, ...": the first four numbers.
std::string FirstOf(const std::vector<int64_t>& numbers);
// "a, b, c"
std::string Listed(const std::vector<std::string>& texts);
// "a, b and c"
std::string ListedWithAnd(const std::vector<std::string>& texts);
// `text` as the beginning of a sentence. Names of programs and of their options
// stay as they are: "torch.profiler ...", "record_shapes ...".
std::string Capitalised(std::string text);
// "3 steps" for a mean that is whole but for rounding, else "2.5 steps".
std::string MeanCount(double count, std::string_view what,
                      std::string_view many = "");
// "38.2 MB", in decimal units.
std::string Bytes(double bytes);
// "4.41 GB/s". A byte per nanosecond is 1 GB/s.
std::string Bandwidth(double gb_per_s);
// "2.1x"; two decimals below 1.1.
std::string Factor(double factor);

}  // namespace stepscope
