// Numbers as a report says them: rounded to what can be told, never "-0",
// singular where there is one. Shared by the rules' sentences and the formats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stepscope {

// "41.3", "148", "0.04": three digits at most, or two decimals.
std::string Number(double value);
// "4" of a whole number, else as Number().
std::string Times(double value);
// "41.3 ms"
std::string Milliseconds(double ms);
// "26 %", "0.4 %"; of a fraction.
std::string Percent(double frac);
// "1 step", "3 steps"; `what` in the singular, `many` where an "s" is not
// enough ("launches").
std::string Count(int64_t count, std::string_view what,
                  std::string_view many = "");
// "38.2 MB", decimal units.
std::string Bytes(double bytes);
// "2.1x" as a factor.
std::string Factor(double factor);

}  // namespace stepscope
